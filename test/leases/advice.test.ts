/** What a lease in Redis has to say in a claim: only whether a hold that has run out may be taken over. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createLog } from '../../src/log.ts';
import { type Database, openDatabase } from '../../src/postgres/index.ts';
import type { Leases, Verdict } from '../../src/queue/index.ts';
import { carryDelivery, newCounts, type WorkerEnvironment } from '../../src/runs/index.ts';
import { claim, SQL_WORKFLOW, startRun } from '../support/sql-run.ts';
import { openSqlStage, type SqlStage } from '../support/sql-stage.ts';

let stage: SqlStage;
let db: Database;

beforeAll(async () => {
  stage = await openSqlStage('advice');
  db = openDatabase({ url: stage.url, role: 'countersign_worker' });
});

afterAll(async () => {
  await db.close();
  await stage.close();
});

type Answer = Awaited<ReturnType<Leases['acquire']>>;

/** One delivery to a worker that has no workflow to carry it with, so that it goes no further than the claim. */
async function deliver(answer: Answer, lateMs: number, held: 'free' | 'held' | 'run out') {
  const run = await startRun(stage.admin, stage.worker);
  if (held !== 'free') {
    await claim(stage.admin, run, { ttlMs: held === 'held' ? 60_000 : 1 });
    await sleep(10);
  }
  const asked: string[] = [];
  const leases: Leases = {
    acquire: async () => {
      await sleep(lateMs);
      return answer;
    },
    seize: async () => void asked.push('seize'),
    renew: async () => undefined,
    release: async () => void asked.push('release'),
  };
  const counts = newCounts();
  const env = {
    db,
    leases,
    counts,
    holds: { add: () => ({}), remove: () => undefined },
    registry: new Map(),
    capabilities: { workflows: [SQL_WORKFLOW], stateSchemas: ['input/1'], tools: [] },
    log: createLog('advice', 'silent'),
    workerId: stage.other,
    settings: { ttlMs: 5_000, maxAttempts: 5, maxSegmentMs: 1_000, retryDelayMs: 1 },
  } as unknown as WorkerEnvironment;
  const verdict: Verdict = await carryDelivery(env, { tenant: 'acme', runId: run.id, wake: 1 });
  return { verdict, asked, claimed: counts.claimed, held: counts.held };
}

it.each([
  ['acquired', 0],
  ['acquired', 60],
  ['busy', 0],
  ['busy', 60],
  ['unknown', 0],
  ['unknown', 60],
] as const)('a lease that is %s after %i ms', async (answer, lateMs) => {
  const release = answer === 'unknown' ? [] : ['release'];
  const taken = { verdict: { kind: 'done' }, claimed: 1, held: 0 };
  const seized = answer === 'busy' ? ['seize', ...release] : release;
  expect(await deliver(answer, lateMs, 'free')).toEqual({ ...taken, asked: seized });

  const left = { claimed: 0, held: 1, asked: release };
  const later = await deliver(answer, lateMs, 'held');
  expect(later).toMatchObject(left);
  expect(later.verdict).toMatchObject({ kind: 'delay' });

  // Somebody keeps the lease whose hold has run out: alive, and cut off from Postgres.
  expect(await deliver(answer, lateMs, 'run out')).toEqual(
    answer === 'busy' ? { ...left, verdict: { kind: 'delay', ms: 100 } } : { ...taken, asked: release },
  );
});
