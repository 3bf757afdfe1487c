/** What goes wrong during a soak, at random and again and again, while a supervisor starts again whatever has died. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Lane } from '../crash-matrix/lane.ts';
import type { Member } from '../crash-matrix/member.ts';
import { PROVIDER_KINDS } from '../crash-matrix/workflows.ts';
import { openResumeQueue } from '../src/queue/index.ts';

export type ChaosCounts = {
  kills: number;
  duplicates: number;
  flushes: number;
  connectionDrops: number;
  providerFaults: number;
};

/** The oldest of each role is spared, for its memory is watched. */
const MORTAL = ['worker', 'relay', 'reconciler', 'api'] as const;
const COPIES = 20;

/** Another copy of the current job of some runs that have not ended. */
const RUNS = `
  select tenant, id as "runId", wake from countersign.runs
  where status in ('ready', 'running', 'awaiting_approval', 'awaiting_reconciliation') order by random() limit ${COPIES}`;

/** A few of the fleet's own connections, whatever they are doing just then. */
const DROP = `
  select pg_terminate_backend(pid) from (
    select pid from pg_stat_activity where datname = current_database() and application_name like 'countersign%'
    order by random() limit 3) some`;

/** @param every average ms between two events. */
export async function stirUp(
  lane: Lane,
  options: { random: () => number; every: number; over: AbortSignal },
): Promise<ChaosCounts> {
  const counts: ChaosCounts = { kills: 0, duplicates: 0, flushes: 0, connectionDrops: 0, providerFaults: 0 };
  const { random, every, over } = options;
  const queue = openResumeQueue({
    redisUrl: lane.place.redisUrl,
    postgresUrl: lane.place.databaseUrl,
    onError: () => undefined,
  });
  const kill = () => killOne(lane, random, counts);
  const copy = () => duplicate(lane, queue, counts);
  const drop = () => dropConnections(lane, counts);
  const trouble = () => troubleProvider(lane, random, counts);
  /** As often as it stands here. */
  const events = [
    kill,
    kill,
    kill,
    copy,
    copy,
    copy,
    drop,
    drop,
    trouble,
    trouble,
    () => flush(lane, counts),
  ];
  try {
    while (!over.aborted) {
      await sleep(every * 2 * random());
      const event = events[Math.floor(random() * events.length)] ?? kill;
      // What goes wrong may hit us too: that is no reason to stop.
      await event().catch(() => undefined);
    }
  } finally {
    await queue.close();
  }
  return counts;
}

async function killOne(lane: Lane, random: () => number, counts: ChaosCounts): Promise<void> {
  const mortals: Member[] = MORTAL.flatMap((role) => lane.fleet.all(role).slice(1));
  const victim = mortals[Math.floor(random() * mortals.length)];
  if (victim === undefined || victim.role === null) {
    return;
  }
  const { role } = victim;
  victim.doomed = true;
  victim.signal('SIGKILL');
  await victim.ended;
  counts.kills += 1;
  await lane.fleet.recruit(role);
}

async function duplicate(
  lane: Lane,
  queue: ReturnType<typeof openResumeQueue>,
  counts: ChaosCounts,
): Promise<void> {
  const { rows } = await lane.admin.pool.query<{ tenant: string; runId: string; wake: number }>(RUNS);
  if (rows.length > 0) {
    await queue.publish(rows.map((job) => ({ id: randomUUID(), job })));
    counts.duplicates += rows.length;
  }
}

async function flush(lane: Lane, counts: ChaosCounts): Promise<void> {
  await lane.forgetJobs();
  counts.flushes += 1;
}

async function dropConnections(lane: Lane, counts: ChaosCounts): Promise<void> {
  counts.connectionDrops += (await lane.admin.pool.query(DROP)).rowCount ?? 0;
}

async function troubleProvider(lane: Lane, random: () => number, counts: ChaosCounts): Promise<void> {
  const kind = PROVIDER_KINDS[Math.floor(random() * PROVIDER_KINDS.length)] ?? 'lookup';
  const type = random() < 0.5 ? 'commit_then_drop' : 'drop';
  await lane.provider.client.fault({ kind, fault: { type } });
  counts.providerFaults += 1;
}
