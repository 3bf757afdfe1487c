/** The run that the SDK alone did twice, with Countersign: two worker processes, its resume job delivered five times. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { decide, KeyRing, listApprovals, migrate, openDatabase, showApproval, start } from '../src/index.ts';
import { openResumeQueue } from '../src/queue/index.ts';
import type { DeliveryCounts } from '../src/runs/index.ts';
import { type Child, startChild } from './child.ts';
import type { Cleanup } from './cleanup.ts';
import { deployPrompt } from './deploy-tool.ts';
import type { LedgerWorkerOptions } from './ledger-process.ts';
import { temporaryPostgres } from './postgres-server.ts';
import { countedKind, type Provider } from './provider-process.ts';

const TENANT = 'lab';
const KIND = 'with-ledger-twice';
const WAIT_MS = 60_000;

export type LedgerResult = {
  effects: number;
  /** Deliveries of the one run's resume job that the two workers were handed while and after one carried it. */
  duplicates: number;
};

/**
 * Starts a run, approves it, and while one worker stands inside the provider's call delivers its job twice more, and
 * twice again when the run is over.
 *
 * @throws when the duplicates did not reach the workers: then the count would prove nothing.
 */
export async function resumeTwiceWithLedger(
  cleanup: Cleanup,
  provider: Provider,
  redisUrl: string | null,
): Promise<LedgerResult> {
  const { url: databaseUrl } = await temporaryPostgres(cleanup, 'lab');
  await migrate({ url: databaseUrl });
  const count = await countedKind(provider, KIND);
  const spec = KeyRing.generate();
  const options = { databaseUrl, redisUrl, keys: spec, providerUrl: provider.url, kind: KIND };
  const workers = await startFleet(cleanup, options);
  const fleet = { databaseUrl, redisUrl, keys: KeyRing.parse(spec), workers };

  const runId = await startPausedRun(cleanup, fleet);
  await provider.client.fault({
    kind: KIND,
    fault: { type: 'wait_for_gate', gate: 'lab', when: 'before_commit' },
  });
  await approve(cleanup, fleet, runId);
  await provider.client.waitFor('held', { kind: KIND, timeoutMs: WAIT_MS });
  await deliverTwice(cleanup, fleet, runId);
  await until('the other worker was handed the duplicates', async () => (await total(workers)).held >= 2);
  await provider.client.openGate('lab');
  await until('the run completed', async () => (await total(workers)).completed === 1);
  await deliverTwice(cleanup, fleet, runId);
  await until('the late duplicates arrived', async () => (await total(workers)).stale >= 2);
  const { held, stale } = await total(workers);
  return { effects: await count(), duplicates: held + stale };
}

type Fleet = { databaseUrl: string; redisUrl: string | null; keys: KeyRing; workers: Child[] };

async function startFleet(cleanup: Cleanup, options: LedgerWorkerOptions): Promise<Child[]> {
  const module = new URL('./ledger-process.js', import.meta.url);
  const workers = [startChild(cleanup, { module }), startChild(cleanup, { module })];
  await Promise.all(workers.map((worker) => worker.call('start', options)));
  const relay = startChild(cleanup, { module: new URL('./relay-process.js', import.meta.url) });
  await relay.call('start', options);
  return workers;
}

async function startPausedRun(cleanup: Cleanup, { databaseUrl, keys, workers }: Fleet): Promise<string> {
  const db = openDatabase({ url: databaseUrl, role: 'countersign_api', max: 2 });
  cleanup.defer(() => db.close());
  const { runId } = await start(db, keys, {
    tenant: TENANT,
    workflow: 'release',
    input: deployPrompt,
    requestedBy: 'lab',
  });
  await until('the run paused', async () => (await total(workers)).paused === 1);
  return runId;
}

async function approve(cleanup: Cleanup, { databaseUrl, keys }: Fleet, runId: string): Promise<void> {
  const db = openDatabase({ url: databaseUrl, role: 'countersign_api', max: 2 });
  cleanup.defer(() => db.close());
  const [pending] = (await listApprovals(db, { tenant: TENANT })).filter((card) => card.runId === runId);
  if (pending === undefined) {
    throw new Error('the paused run has no pending approval');
  }
  const { fingerprint } = await showApproval(db, keys, { tenant: TENANT, approvalId: pending.id });
  await decide(db, keys, {
    tenant: TENANT,
    approvalId: pending.id,
    verdict: 'approve',
    subject: 'alice',
    fingerprint,
  });
}

/** Publishes the run's job twice more under new job ids, as a queue that lost its memory would. */
async function deliverTwice(
  cleanup: Cleanup,
  { databaseUrl, redisUrl }: Fleet,
  runId: string,
): Promise<void> {
  const db = openDatabase({ url: databaseUrl, role: null, max: 1 });
  cleanup.defer(() => db.close());
  const { rows } = await db.pool.query<{ wake: number }>('select wake from countersign.runs where id = $1', [
    runId,
  ]);
  const queue = openResumeQueue({ redisUrl, postgresUrl: databaseUrl, onError: () => undefined });
  cleanup.defer(() => queue.close());
  const job = { tenant: TENANT, runId, wake: rows[0]?.wake ?? 0 };
  await queue.publish([
    { id: randomUUID(), job },
    { id: randomUUID(), job },
  ]);
}

/** Both workers' counts, added up. */
async function total(workers: readonly Child[]): Promise<DeliveryCounts> {
  const counts = await Promise.all(workers.map((worker) => worker.call<DeliveryCounts>('counts')));
  const sum = { ...counts[0] } as DeliveryCounts;
  for (const more of counts.slice(1)) {
    for (const key of Object.keys(sum) as (keyof DeliveryCounts)[]) {
      sum[key] += more[key];
    }
  }
  return sum;
}

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + WAIT_MS;
  while (!(await isSo())) {
    if (performance.now() > end) {
      throw new Error(`waited ${WAIT_MS} ms in vain: ${what}`);
    }
    await sleep(25);
  }
}
