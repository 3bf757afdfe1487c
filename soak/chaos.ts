/** What goes wrong during a soak, at random and again and again, while a supervisor starts again whatever has died. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Lane } from '../crash-matrix/lane.ts';
import type { Member } from '../crash-matrix/member.ts';
import { PROVIDER_KINDS } from '../crash-matrix/workflows.ts';
import { dropConnections, duplicateJobs } from '../src/chaos/index.ts';
import { openResumeQueue, type ResumeQueue } from '../src/queue/index.ts';

export type ChaosCounts = {
  kills: number;
  duplicates: number;
  flushes: number;
  connectionDrops: number;
  providerFaults: number;
};
type Kind = keyof ChaosCounts;

/** The oldest of each role is spared, for its memory is watched. */
const MORTAL = ['worker', 'relay', 'reconciler', 'api'] as const;
const COPIES = 20;
/** A copy may come after the run has ended. */
const ENDED_WITHIN_MS = 2_000;
const DROPPED_AT_ONCE = 3;
/** As often as it stands here. */
const KINDS: readonly Kind[] = [
  'kills',
  'kills',
  'kills',
  'duplicates',
  'duplicates',
  'duplicates',
  'connectionDrops',
  'connectionDrops',
  'providerFaults',
  'providerFaults',
  'flushes',
];
/** So often in vain is no accident any more. */
const IN_VAIN = 3;

/**
 * @param options.every average ms between two events.
 * @throws when some kind of trouble never worked: what was not done proves nothing.
 */
export async function stirUp(
  lane: Lane,
  options: { random: () => number; every: number; over: AbortSignal },
): Promise<ChaosCounts> {
  const counts: ChaosCounts = { kills: 0, duplicates: 0, flushes: 0, connectionDrops: 0, providerFaults: 0 };
  const failures = new Map<Kind, { times: number; last: unknown }>();
  const { random, every, over } = options;
  const replacements: Promise<void>[] = [];
  const queue = openResumeQueue({
    redisUrl: lane.place.redisUrl,
    postgresUrl: lane.place.databaseUrl,
    onError: () => undefined,
  });
  try {
    while (!over.aborted) {
      await sleep(every * 2 * random());
      const kind = KINDS[Math.floor(random() * KINDS.length)] ?? 'kills';
      try {
        counts[kind] += await make(kind, { lane, queue, random, replacements });
      } catch (error) {
        // What goes wrong may hit us too: that is no reason to stop.
        failures.set(kind, { times: (failures.get(kind)?.times ?? 0) + 1, last: error });
      }
    }
  } finally {
    await Promise.all(replacements);
    await queue.close();
  }
  for (const [kind, { times, last }] of failures) {
    if (counts[kind] === 0 && times >= IN_VAIN) {
      throw new Error(`${kind} failed ${times} times and never worked`, { cause: last });
    }
  }
  return counts;
}

type Stage = {
  lane: Lane;
  queue: ResumeQueue;
  random: () => number;
  /** Processes that start in the place of killed ones. */
  replacements: Promise<void>[];
};

/** One event. Returns how much of it there was. */
async function make(kind: Kind, { lane, queue, random, replacements }: Stage): Promise<number> {
  switch (kind) {
    case 'kills':
      return killOne(lane, random, replacements);
    case 'duplicates': {
      const copied = { tenant: null, share: 1, endedWithinMs: ENDED_WITHIN_MS, atMost: COPIES };
      return (await duplicateJobs(lane.admin, queue, copied)).length;
    }
    case 'flushes':
      await lane.forgetJobs();
      return 1;
    case 'connectionDrops':
      return dropConnections(lane.admin, DROPPED_AT_ONCE);
    case 'providerFaults': {
      const at = PROVIDER_KINDS[Math.floor(random() * PROVIDER_KINDS.length)] ?? 'lookup';
      const type = random() < 0.5 ? 'commit_then_drop' : 'drop';
      await lane.provider.client.fault({ kind: at, fault: { type } });
      return 1;
    }
  }
}

async function killOne(lane: Lane, random: () => number, replacements: Promise<void>[]): Promise<number> {
  const mortals: Member[] = MORTAL.flatMap((role) => lane.fleet.all(role).slice(1));
  const victim = mortals[Math.floor(random() * mortals.length)];
  if (victim === undefined || victim.role === null) {
    return 0;
  }
  const { role } = victim;
  victim.doomed = true;
  victim.signal('SIGKILL');
  await victim.ended;
  // Not waited for: other things go wrong while it starts.
  replacements.push(lane.fleet.recruit(role).catch(() => undefined));
  return 1;
}
