/** Countersign: workers and relay as processes; this process is the api. */
import { startChild } from '../lab/child.ts';
import type { RelayAddress } from '../lab/relay-process.ts';
import { openState } from '../src/checkpoints/index.ts';
import { decide, KeyRing, migrate, openDatabase, start } from '../src/index.ts';
import { promptFor } from './agent.ts';
import { type Fleet, inLanes, type OpenFleet } from './fleet.ts';
import type { SafeWorkerOptions } from './safe-worker.ts';

const TENANT = 'bench';
const API_LANES = 8;

type Pending = { run_id: string; id: string; fingerprint: string };

export const openSafeFleet: OpenFleet = async (cleanup, options): Promise<Fleet> => {
  const { databaseUrl, redisUrl, concurrency } = options;
  await migrate({ url: databaseUrl });
  const spec = KeyRing.generate();
  const keys = KeyRing.parse(spec);
  const api = openDatabase({ url: databaseUrl, role: 'countersign_api', max: API_LANES });
  const admin = openDatabase({ url: databaseUrl, role: null, max: 1 });
  cleanup.defer(() => Promise.all([api.close(), admin.close()]));

  const workers = Array.from({ length: options.workers }, () =>
    startChild(cleanup, { module: new URL('./safe-worker.js', import.meta.url) }),
  );
  const workerOptions: SafeWorkerOptions = { databaseUrl, redisUrl, keys: spec, concurrency };
  await Promise.all(workers.map((worker) => worker.call('start', workerOptions)));
  const publisher = startChild(cleanup, { module: new URL('../lab/relay-process.js', import.meta.url) });
  const address: RelayAddress = { databaseUrl, redisUrl };
  await publisher.call('start', address);

  const runs = new Map<string, string>();
  const pending = new Map<string, Pending>();
  /** The cards a reviewer would have on the screen: read before the clock runs. */
  const readCards = async (): Promise<void> => {
    const { rows } = await admin.pool.query<Pending>(
      "select run_id, id, fingerprint from countersign.approvals where state = 'pending'",
    );
    for (const row of rows) {
      pending.set(row.run_id, row);
    }
  };
  const decideOne = async (ref: string): Promise<void> => {
    const card = pending.get(runs.get(ref) ?? '');
    if (card === undefined) {
      throw new Error(`run ${ref} has no pending approval`);
    }
    await decide(api, keys, {
      tenant: TENANT,
      approvalId: card.id,
      fingerprint: card.fingerprint,
      verdict: 'approve',
      subject: 'alice',
    });
  };
  return {
    workers,
    publisher,
    start: (refs) =>
      inLanes(refs, API_LANES, async (ref) => {
        const input = promptFor(ref);
        const started = await start(api, keys, {
          tenant: TENANT,
          workflow: 'bench',
          input,
          requestedBy: 'bench',
        });
        runs.set(ref, started.runId);
      }),
    async prepare(refs) {
      await publisher.call('stop');
      await readCards();
      await inLanes(refs, API_LANES, decideOne);
    },
    publish: () => publisher.call('start', address),
    decide: decideOne,
    async stateSize(ref) {
      const runId = runs.get(ref) ?? '';
      const { rows } = await admin.pool.query<{ sealed: Buffer }>(
        'select sealed from countersign.checkpoints where run_id = $1 and number = 1',
        [runId],
      );
      const id = { tenant: TENANT, runId, number: 1 };
      return rows[0] === undefined ? 0 : openState(keys, id, 'bench', rows[0].sealed).stateText.length;
    },
  };
};
