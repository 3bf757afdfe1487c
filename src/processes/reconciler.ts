import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Log } from '../log.ts';
import { assertDurable, assertSchema, callFunction, openDatabase } from '../postgres/index.ts';
import { reconcileOnce } from '../reconcile/index.ts';
import { sweepOnce } from '../runs/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { stopOnce } from '../stop-once.ts';
import { announcement, buildRegistry, type Workflow } from '../workflows/index.ts';
import { type Running, runLoop } from './loop.ts';

export type ReconcilerOptions = {
  databaseUrl: string;
  keys: KeyRing;
  workflows: readonly Workflow[];
  log: Log;
  /** Poll interval of the reconcile pass while nothing is due. Default 500 ms. */
  reconcileMs?: number;
  /** Poll interval of the sweep. Default 1 s. */
  sweepMs?: number;
  /** How long a run may be quiet before the sweep looks at it. Default 15 s. */
  patienceMs?: number;
  /** How long an action stays with a reconciler that has died. Default 30 s: longer than a look-up may take. */
  leaseMs?: number;
  /** Tests only: accept a Postgres that may forget. */
  allowForgetful?: boolean;
};

/** Settles unproven actions by evidence and sweeps what should move, until stopped. Any number may run. */
export async function runReconciler(options: ReconcilerOptions): Promise<Running> {
  const { log, keys } = options;
  const registry = await buildRegistry(options.workflows);
  const db = openDatabase({
    url: options.databaseUrl,
    role: 'countersign_worker',
    max: 4,
    name: 'countersign reconciler',
    onError: (error) => log.debug({ err: error }, 'connection trouble'),
  });
  const id = randomUUID();
  const { workflows, stateSchemas, tools } = announcement(registry);
  const announce = () =>
    callFunction(db, 'announce_worker', [
      id,
      'reconciler',
      `${hostname()}/${process.pid}`,
      workflows,
      stateSchemas,
      tools,
      60_000,
    ]);
  try {
    await assertSchema(db);
    await assertDurable(db, options.allowForgetful);
    await announce();
  } catch (error) {
    await db.close();
    throw error;
  }
  const loops = [
    runLoop({
      name: 'reconcile',
      log,
      idleMs: options.reconcileMs ?? 500,
      pass: async () => {
        const { leaseMs } = options;
        const limits = { limit: 50, ...(leaseMs === undefined ? {} : { leaseMs }) };
        return (await reconcileOnce({ db, keys, registry, log }, limits)).asked;
      },
    }),
    runLoop({
      name: 'sweep',
      log,
      idleMs: options.sweepMs ?? 1_000,
      pass: async () => {
        const swept = await sweepOnce(db, { limit: 200, patienceMs: options.patienceMs ?? 15_000 });
        return swept.looked === 200 ? swept.looked : 0;
      },
    }),
    runLoop({ name: 'announce', log, idleMs: 20_000, pass: async () => announce().then(() => 0) }),
  ];
  return {
    stop: stopOnce(async () => {
      await Promise.all(loops.map((loop) => loop.stop()));
      await callFunction(db, 'stop_worker', [id]).catch(() => undefined);
      await db.close();
    }),
  };
}
