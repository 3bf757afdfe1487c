/**
 * A run that exists exactly if its caller's own transaction commits (and, by the caller's key, once), started by a role
 * that may do nothing else here.
 */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/postgres/index.ts';
import { start } from '../../src/runs/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { openSession } from '../support/sessions.ts';
import { announceWorker, SQL_WORKFLOW } from '../support/sql-run.ts';

const keys = KeyRing.parse(KeyRing.generate());
const [workflow = '', version = ''] = SQL_WORKFLOW.split('@');

let database: TestDatabase;
let admin: Database;
let api: Database;
const sessions: pg.Client[] = [];

beforeAll(async () => {
  database = await createTestDatabase('start');
  admin = openDatabase({ url: database.url, role: null, max: 4 });
  api = openDatabase({ url: database.url, role: 'countersign_api', max: 12 });
  await announceWorker(admin);
});

afterAll(async () => {
  await Promise.all(sessions.map((session) => session.end()));
  await api.close();
  await admin.close();
  await database.drop();
});

async function rows<Row>(sql: string, values: unknown[] = []): Promise<Row[]> {
  return (await admin.pool.query(sql, values)).rows as Row[];
}

describe('start in the caller’s own transaction', () => {
  const options = { workflow, version, input: 'go', requestedBy: 'customer', tenant: 'customers' };

  /** A login role of a customer's own service, granted one function. */
  async function customer(): Promise<pg.Client> {
    await admin.pool.query(`
      do $$ begin create role customer_service nologin; exception when duplicate_object or unique_violation then null; end $$;
      grant usage on schema countersign to customer_service;
      create table if not exists public.orders (id uuid primary key);
      grant insert, select on public.orders to customer_service;
      do $$ declare f text; begin
        select oid::regprocedure::text into f from pg_proc where proname = 'start_run' and pronamespace = 'countersign'::regnamespace;
        execute 'grant execute on function ' || f || ' to customer_service';
      end $$;`);
    const session = await openSession(database.url, 'none');
    await session.query('set role customer_service');
    sessions.push(session);
    return session;
  }

  it('exists exactly if that transaction commits, and one function is all its role needs', async () => {
    const tx = await customer();
    for (const end of ['rollback', 'commit'] as const) {
      const order = randomUUID();
      await tx.query('begin');
      await tx.query('insert into public.orders values ($1)', [order]);
      const { runId, outcome } = await start(tx, keys, options);
      expect(outcome).toBe('started');
      expect(await rows('select 1 from countersign.runs where id = $1', [runId])).toEqual([]);
      await tx.query(end);
      const expected = end === 'commit' ? 1 : 0;
      expect(await rows('select 1 from countersign.runs where id = $1', [runId])).toHaveLength(expected);
      expect(await rows('select 1 from countersign.outbox where run_id = $1', [runId])).toHaveLength(
        expected,
      );
      expect(await rows('select 1 from countersign.checkpoints where run_id = $1', [runId])).toHaveLength(
        expected,
      );
      expect(await rows('select 1 from public.orders where id = $1', [order])).toHaveLength(expected);
    }
    await expect(tx.query('select * from countersign.runs')).rejects.toMatchObject({ code: '42501' });
  });

  it('names the tenant for that transaction only', async () => {
    const tx = await customer();
    await tx.query('begin');
    await start(tx, keys, options);
    await tx.query('commit');
    const { rows: setting } = await tx.query("select current_setting('countersign.tenant', true) as tenant");
    expect(setting).toEqual([{ tenant: '' }]);
  });

  it('is idempotent by the caller’s key: twenty at once are one run, another input is a conflict', async () => {
    const key = 'order 42';
    const started = await Promise.all(
      Array.from({ length: 20 }, () => start(api, keys, { ...options, key })),
    );
    expect(new Set(started.map(({ runId }) => runId)).size).toBe(1);
    expect(started.filter(({ outcome }) => outcome === 'started')).toHaveLength(1);
    for (const other of [{ input: 'something else' }, { context: { a: 1 } }]) {
      await expect(start(api, keys, { ...options, key, ...other })).rejects.toMatchObject({
        code: 'CLIENT_KEY_CONFLICT',
      });
    }
    const elsewhere = await start(api, keys, { ...options, key, tenant: 'other customers' });
    expect(elsewhere.outcome).toBe('started');
  });

  it('a key whose first transaction rolls back is free, and a second start of it waits to see', async () => {
    const [first, second] = [await customer(), await customer()];
    await first.query('begin');
    await start(first, keys, { ...options, key: 'undecided' });
    const waiting = start(second, keys, { ...options, key: 'undecided' });
    await first.query('rollback');
    expect((await waiting).outcome).toBe('started');
  });

  it('a repeated start of one key never supersedes the very run that it started', async () => {
    for (let round = 0; round < 15; round += 1) {
      const ask = { ...options, key: `turn ${round}`, session: `chat ${round}`, supersede: true };
      const started = await Promise.all(Array.from({ length: 6 }, () => start(api, keys, ask)));
      expect(new Set(started.map(({ runId }) => runId)).size).toBe(1);
      const [run] = await rows<{ status: string }>('select status from countersign.runs where id = $1', [
        started[0]?.runId,
      ]);
      expect(run).toEqual({ status: 'ready' });
    }
  });
});
