/**
 * What a run costs must not grow with the runs beside it, whatever the planner knows of the tables. Counted in rows that
 * were read, not in time: a plan through the wrong index reads the other runs' rows too.
 */
import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { callFunction, type Database, openDatabase } from '../../src/postgres/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import {
  announceWorker,
  claim,
  decideBy,
  finish,
  intend,
  journal,
  pause,
  SQL_WORKFLOW,
  type SqlRun,
  settle,
  startRun,
} from '../support/sql-run.ts';

const RUNS = 60;
let database: TestDatabase;
let db: Database;

afterEach(async () => {
  await db?.close();
  await database?.drop();
});

/** One connection, so that its counters can be read at once; no autovacuum, so that nobody else gathers statistics. */
async function open(): Promise<string> {
  database = await createTestDatabase('growth');
  db = openDatabase({ url: database.url, role: null, max: 1 });
  const { rows } = await db.pool.query<{ name: string }>(
    "select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname = 'countersign'",
  );
  for (const { name } of rows) {
    await db.pool.query(`alter table ${name} set (autovacuum_enabled = off)`);
  }
  return announceWorker(db);
}

/** Many runs at once through the same stations: all wait for a decision, all are decided, all resume and end. */
async function wave(worker: string): Promise<{ rowsPerRun: number }> {
  const before = await rowsRead();
  const runs: SqlRun[] = [];
  for (let n = 0; n < RUNS; n++) {
    const run = await startRun(db, worker, 'acme', randomUUID());
    await claim(db, run);
    await journal(db, run, [{}]);
    await pause(db, run);
    runs.push({ ...run, wake: 2 });
  }
  const shown = await db.pool.query<{ id: string; fingerprint: string }>(
    'select id, fingerprint from countersign.approvals',
  );
  const fingerprints = new Map(shown.rows.map(({ id, fingerprint }) => [id, fingerprint]));
  for (const run of runs) {
    for (const action of run.actions) {
      action.fingerprint = fingerprints.get(action.approvalId) ?? '';
      expect((await decideBy(db, run, action)).outcome).toBe('approved');
    }
  }
  for (const run of runs) {
    await claim(db, run);
    for (const action of run.actions) {
      await intend(db, run, action);
      await settle(db, run, action, { attempt: 1, outcome: 'succeeded', epoch: run.epoch });
    }
    expect(await finish(db, run)).toBe(true);
  }
  return { rowsPerRun: ((await rowsRead()) - before) / RUNS };
}

async function rowsRead(): Promise<number> {
  await db.pool.query('select pg_stat_force_next_flush()');
  const { rows } = await db.pool.query<{ rows: number }>(`
    select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::integer as rows from pg_stat_user_tables
    where schemaname = 'countersign' and relname not in ('workers', 'workflows', 'tenants')`);
  return rows[0]?.rows ?? 0;
}

/** Every question that the fleet asks over and over, whether or not there is anything to do. */
async function loops(): Promise<number> {
  const before = await rowsRead();
  await callFunction(db, 'runs_to_sweep', [100, 15_000]);
  await callFunction(db, 'runs_to_unpark', [100, [SQL_WORKFLOW]]);
  await callFunction(db, 'claim_actions_to_reconcile', [100, 15_000, [SQL_WORKFLOW]]);
  await callFunction(db, 'runs_to_repeat', [100]);
  await callFunction(db, 'claim_outbox', [100, 15_000, randomUUID()]);
  await callFunction(db, 'claim_notifications', [100, 15_000, randomUUID()]);
  await callFunction(db, 'fleet_numbers', []);
  return (await rowsRead()) - before;
}

/** As a relay and a notifier that have sent and delivered everything. */
async function emptyBoxes(): Promise<void> {
  await db.pool.query('update countersign.outbox set sent_at = clock_timestamp()');
  await db.pool.query('update countersign.notifications set delivered_at = clock_timestamp()');
}

describe('the rows that a run reads', () => {
  it('are as many when others are there, on tables without statistics', async () => {
    const worker = await open();
    const first = await wave(worker);
    const second = await wave(worker);
    expect(first.rowsPerRun).toBeLessThan(100);
    expect(second.rowsPerRun / first.rowsPerRun).toBeLessThan(1.2);
  }, 60_000);

  it('are as many when others are there, with statistics of a moment when nothing was under way', async () => {
    const worker = await open();
    const first = await wave(worker);
    await db.pool.query('vacuum analyze');
    const second = await wave(worker);
    expect(second.rowsPerRun / first.rowsPerRun).toBeLessThan(1.2);
  }, 60_000);
});

it('no index begins with the tenant', async () => {
  await open();
  const { rows } = await db.pool.query(`
    select i.indexrelid::regclass as index from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
    join pg_class c on c.oid = i.indrelid and c.relnamespace = 'countersign'::regnamespace
    where a.attname = 'tenant'`);
  expect(rows).toEqual([]);
});

it('what the loops and the metrics read is what is open, not what has ever been', async () => {
  const worker = await open();
  for (let ended = 0; ended < 2; ended++) {
    await wave(worker);
    await emptyBoxes();
  }
  expect(await loops()).toBeLessThan(10);
}, 60_000);
