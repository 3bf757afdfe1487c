/**
 * A small fleet inside the test's own process, on a database and a queue of its own: real Postgres, real Redis (or
 * BullMQ's Postgres backend), the real relay, workers and reconciler. Tests that kill use processes instead.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { inject } from 'vitest';
import { decide, listApprovals, showApproval } from '../../src/approvals/index.ts';
import { createLog } from '../../src/log.ts';
import { type Database, openDatabase } from '../../src/postgres/index.ts';
import {
  type ReconcilerOptions,
  type RelayOptions,
  type ResumeWorker,
  type ResumeWorkerOptions,
  type Running,
  runReconciler,
  runRelay,
  runResumeWorker,
} from '../../src/processes/index.ts';
import { type StartOptions, showRun, start } from '../../src/runs/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import type { Workflow } from '../../src/workflows/index.ts';
import { createTestDatabase } from './database.ts';

export type Backend = 'redis' | 'embedded';

export type Fleet = {
  url: string;
  redisUrl: string | null;
  keys: KeyRing;
  /** What `keys` was read from, for processes that need it in writing. */
  keySpec: ReturnType<typeof KeyRing.generate>;
  /** As the api role. */
  api: Database;
  /** As the login role: sees everything, for assertions only. */
  admin: Database;
  worker(options?: Partial<ResumeWorkerOptions>): Promise<ResumeWorker>;
  relay(options?: Partial<RelayOptions>): Promise<Running>;
  reconciler(options?: Partial<ReconcilerOptions>): Promise<Running>;
  start(options: Partial<StartOptions> & { workflow: string }): Promise<string>;
  /** Waits until the run has one of the statuses; fails with what it has instead. */
  until(runId: string, statuses: string | string[], timeoutMs?: number): Promise<string>;
  /** Decides every pending approval of the run. */
  decideAll(runId: string, verdict: 'approve' | 'reject', words?: string): Promise<number>;
  output(runId: string): Promise<unknown>;
  rows<Row>(sql: string, values?: unknown[]): Promise<Row[]>;
  close(): Promise<void>;
};

/** Redis databases 1 to 15 of the one server, so that two forks do not see each other's jobs. */
function redisUrlFor(): string {
  const url = inject('redisUrl');
  if (url === null) {
    throw new Error(`no Redis: ${inject('redisSkipReason')}`);
  }
  const index = 1 + (Number(process.env.VITEST_POOL_ID ?? '1') % 15);
  return `${url.replace(/\/\d*$/, '')}/${index}`;
}

export async function createFleet(
  workflows: readonly Workflow[],
  options: { name: string; backend: Backend; tenant?: string; redisUrl?: string },
): Promise<Fleet> {
  const tenant = options.tenant ?? 'acme';
  const database = await createTestDatabase(options.name);
  const { url } = database;
  const redisUrl = options.backend === 'redis' ? (options.redisUrl ?? redisUrlFor()) : null;
  const keySpec = KeyRing.generate();
  const keys = KeyRing.parse(keySpec);
  const log = createLog(options.name, process.env.TEST_LOG ?? 'silent');
  const api = openDatabase({ url, role: 'countersign_api', max: 8 });
  const admin = openDatabase({ url, role: null, max: 4 });
  const running: Running[] = [];
  const keep = async <T extends Running>(process: Promise<T>): Promise<T> => {
    const started = await process;
    running.push(started);
    return started;
  };
  const rows = async <Row>(sql: string, values: unknown[] = []) =>
    (await admin.pool.query(sql, values)).rows as Row[];
  const common = { databaseUrl: url, keys, workflows, log, allowForgetful: true };
  return {
    url,
    redisUrl,
    keys,
    keySpec,
    api,
    admin,
    rows,
    worker: (more) =>
      keep(runResumeWorker({ ...common, redisUrl, retryDelayMs: 50, drainMs: 2_000, ...more })),
    relay: (more) => keep(runRelay({ databaseUrl: url, redisUrl, log, idleMs: 10, ...more })),
    reconciler: (more) =>
      keep(runReconciler({ ...common, reconcileMs: 50, sweepMs: 100, patienceMs: 500, ...more })),
    async start(more) {
      return (await start(api, keys, { tenant, input: 'go', requestedBy: 'tester', ...more })).runId;
    },
    async until(runId, statuses, timeoutMs = 15_000) {
      const wanted = [statuses].flat();
      const end = Date.now() + timeoutMs;
      for (;;) {
        const [run] = await rows<{ status: string; reason: string | null }>(
          'select status, reason from countersign.runs where id = $1',
          [runId],
        );
        if (run !== undefined && wanted.includes(run.status)) {
          return run.status;
        }
        if (Date.now() > end) {
          throw new Error(`run is ${run?.status} (${run?.reason}), wanted ${wanted.join(' or ')}`);
        }
        await sleep(15);
      }
    },
    async decideAll(runId, verdict, words) {
      const pending = (await listApprovals(api, { tenant })).filter((approval) => approval.runId === runId);
      for (const { id } of pending) {
        const card = await showApproval(api, keys, { tenant, approvalId: id });
        await decide(api, keys, {
          tenant,
          approvalId: id,
          verdict,
          subject: 'alice',
          fingerprint: card.fingerprint,
          words,
        });
      }
      return pending.length;
    },
    output: async (runId) => (await showRun(api, keys, { tenant, runId })).output,
    async close() {
      await Promise.all(running.map((process) => process.stop()));
      await api.close();
      await admin.close();
      await database.drop();
    },
  };
}
