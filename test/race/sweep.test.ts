/** The sweep is everybody's last resort, so nothing that is wrong with one run may keep it from the others. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/postgres/index.ts';
import { sweepOnce } from '../../src/runs/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { facts } from '../support/run-facts.ts';
import { announceWorker, pausedRun, type SqlRun } from '../support/sql-run.ts';

let database: TestDatabase;
let admin: Database;
let db: Database;
let worker: string;

beforeAll(async () => {
  database = await createTestDatabase('sweep');
  admin = openDatabase({ url: database.url, role: null, max: 4 });
  db = openDatabase({ url: database.url, role: 'countersign_worker', max: 4 });
  worker = await announceWorker(admin);
});

afterAll(async () => {
  await db.close();
  await admin.close();
  await database.drop();
});

const expired = (): Promise<SqlRun> => pausedRun(admin, worker, [{ expiresInMs: 1 }]);

it('a run that cannot be swept keeps no other from being swept, and its error is told', async () => {
  const [poison, ...others] = [await expired(), await expired(), await expired()];
  await admin.pool.query(`
    create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
    create trigger refuse before update on countersign.runs for each row
    when (old.id = '${poison?.id}') execute function public.refuse();`);
  await expect(sweepOnce(db, { limit: 10, patienceMs: 60_000 })).rejects.toMatchObject({
    code: 'POSTGRES_REFUSED',
  });
  for (const run of others) {
    expect((await facts(admin, run)).run.status).toBe('ready');
  }
  await admin.pool.query('drop trigger refuse on countersign.runs');
  await sweepOnce(db, { limit: 10, patienceMs: 60_000 });
  expect(poison && (await facts(admin, poison)).run.status).toBe('ready');
});

it('two sweepers at once expire each approval once and wake each run once', async () => {
  const runs = await Promise.all(Array.from({ length: 10 }, expired));
  await Promise.all(Array.from({ length: 4 }, () => sweepOnce(db, { limit: 100, patienceMs: 60_000 })));
  for (const run of runs) {
    const after = await facts(admin, run);
    expect(after.kinds.filter((kind) => kind === 'approval_expired')).toHaveLength(1);
    expect(after.outbox).toEqual([1, 2]);
  }
});
