/** The side without a ledger: the workers and a producer as processes; this process is the api. */
import { startChild } from '../lab/child.ts';
import { openDatabase } from '../src/index.ts';
import { promptFor } from './agent.ts';
import type { Fleet, OpenFleet } from './fleet.ts';
import { type Address, openUnsafeQueue } from './unsafe-queue.ts';
import type { UnsafeWorkerOptions } from './unsafe-worker.ts';

const TABLE =
  "create table unsafe_runs (id text primary key, prompt text not null, state text, status text not null default 'new')";
/** parameters: ids, prompts. */
const INSERT = 'insert into unsafe_runs (id, prompt) select * from unnest($1::text[], $2::text[])';

export const openUnsafeFleet: OpenFleet = async (cleanup, options): Promise<Fleet> => {
  const { databaseUrl, redisUrl, concurrency } = options;
  const db = openDatabase({ url: databaseUrl, role: null, max: 1 });
  cleanup.defer(() => db.close());
  await db.pool.query(TABLE);
  const address: Address = { databaseUrl, redisUrl };
  const queue = openUnsafeQueue(address);
  cleanup.defer(() => queue.close());

  const workers = Array.from({ length: options.workers }, () =>
    startChild(cleanup, { module: new URL('./unsafe-worker.js', import.meta.url) }),
  );
  const workerOptions: UnsafeWorkerOptions = { ...address, concurrency };
  await Promise.all(workers.map((worker) => worker.call('start', workerOptions)));
  const publisher = startChild(cleanup, { module: new URL('./unsafe-publisher.js', import.meta.url) });
  await publisher.call('open', address);

  let prepared: readonly string[] = [];
  return {
    workers,
    publisher,
    async start(refs) {
      await db.pool.query(INSERT, [refs, refs.map(promptFor)]);
      await queue.add(refs);
    },
    async prepare(refs) {
      prepared = refs;
    },
    publish: () => publisher.call('publish', prepared),
    decide: (ref) => queue.add([ref]),
    async stateSize(ref) {
      const { rows } = await db.pool.query<{ state: string }>('select state from unsafe_runs where id = $1', [
        ref,
      ]);
      return rows[0]?.state.length ?? 0;
    },
  };
};
