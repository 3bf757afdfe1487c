/**
 * Bringing a schema up to date: from many processes at once, by a login that is no superuser, and never over a schema
 * that this version does not know.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { assertSchema, callFunction, migrate, openDatabase } from '../../src/postgres/index.ts';
import { readMigrations } from '../../src/postgres/migrate.ts';
import { start } from '../../src/runs/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { announceWorker, claim, pausedRun, SQL_WORKFLOW, startRun } from '../support/sql-run.ts';

const MIGRATORS = 20;

/** A cluster that has never seen a migration: roles belong to the cluster, not to a database. */
describe('on a cluster that has never seen a migration', () => {
  let folder: string;
  let cluster: EmbeddedPostgres;
  let login: string;

  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'countersign-migrate-'));
    cluster = await startEmbeddedPostgres({ dir: folder, durable: false, database: 'first' });
    await administer(`
      create role owner_login login createrole password 'x';
      alter database first owner to owner_login;`);
    for (const name of ['second', 'third', 'fourth']) {
      await administer(`create database ${name} owner owner_login`);
    }
    const url = new URL(cluster.url);
    url.username = 'owner_login';
    url.password = 'x';
    login = url.href;
  }, 60_000);

  afterAll(async () => {
    await cluster?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it(`${MIGRATORS} migrators at once, spread over four databases and no superuser among them, apply each migration once`, async () => {
    const results = await Promise.all(
      Array.from({ length: MIGRATORS }, async (_, index) => {
        const database = ['first', 'second', 'third', 'fourth'][index % 4] ?? '';
        return { database, ...(await migrate({ url: inDatabase(login, database) })) };
      }),
    );
    const all = (await readMigrations()).map(({ number }) => number);
    expect(all.length).toBeGreaterThan(0);
    for (const database of ['first', 'second', 'third', 'fourth']) {
      const applied = results
        .filter((result) => result.database === database)
        .flatMap((result) => result.applied);
      expect(applied.sort((a, b) => a - b)).toEqual(all);
    }
  }, 60_000);

  it('the protocol works in a schema whose owner is no superuser, under its own row-level security', async () => {
    const url = inDatabase(login, 'first');
    const owner = openDatabase({ url, role: null, max: 2 });
    const worker = openDatabase({ url, role: 'countersign_worker', max: 2 });
    const api = openDatabase({ url, role: 'countersign_api', max: 2 });
    const relay = openDatabase({ url, role: 'countersign_relay', max: 2 });
    const workerId = await announceWorker(worker);
    const [workflow = '', version = ''] = SQL_WORKFLOW.split('@');
    const keys = KeyRing.parse(KeyRing.generate());
    await start(api, keys, {
      tenant: 'acme',
      workflow,
      version,
      input: 'x',
      requestedBy: 'x',
      key: 'k',
      session: 's',
    });
    const run = await startRun(api, workerId);
    expect(await callFunction(relay, 'claim_outbox', [10, 1_000, crypto.randomUUID()])).toHaveLength(2);
    expect((await claim(worker, run)).outcome).toBe('claimed');
    const held = await callFunction(worker, 'renew_holds', [
      workerId,
      1_000,
      1_000,
      [run.tenant],
      [run.id],
      [run.epoch],
    ]);
    expect(held).toEqual([{ tenant: 'acme', run_id: run.id, epoch: 1, renewed: true }]);
    expect(await callFunction(worker, 'runs_to_sweep', [10, 0])).toHaveLength(1);
    expect((await owner.pool.query('select 1 from countersign.runs')).rows).toEqual([]);
    await Promise.all([owner, worker, api, relay].map((db) => db.close()));
  });

  async function administer(sql: string): Promise<void> {
    const client = new pg.Client({ connectionString: cluster.url });
    await client.connect();
    try {
      await client.query(sql);
    } finally {
      await client.end();
    }
  }
});

describe('a schema that this version does not know', () => {
  it('is not touched when it has a migration from the future, and no process starts on it', async () => {
    const database = await createTestDatabase('newer');
    const db = openDatabase({ url: database.url, role: null, max: 1 });
    await db.pool.query(
      "insert into countersign.migrations (number, name, digest) values (9999, '9999_later.sql', 'x')",
    );
    await expect(migrate({ url: database.url })).rejects.toMatchObject({
      code: 'SCHEMA_NEWER',
      details: { migration: 9999 },
    });
    await expect(assertSchema(db)).rejects.toMatchObject({ code: 'SCHEMA_NEWER' });
    await db.close();
    await database.drop();
  });

  it('is not touched when an applied migration reads differently now', async () => {
    const database = await createTestDatabase('changed');
    const db = openDatabase({ url: database.url, role: null, max: 1 });
    await db.pool.query("update countersign.migrations set digest = 'something else' where number = 2");
    await db.pool.query(
      'delete from countersign.migrations where number = (select max(number) from countersign.migrations)',
    );
    await expect(migrate({ url: database.url })).rejects.toMatchObject({
      code: 'SCHEMA_CHANGED',
      details: { migration: 2 },
    });
    await expect(assertSchema(db)).rejects.toMatchObject({ code: 'SCHEMA_MISSING' });
    await db.close();
    await database.drop();
  });

  it('migrating twice changes nothing', async () => {
    const database = await createTestDatabase('twice');
    expect((await migrate({ url: database.url })).applied).toEqual([]);
    await database.drop();
  });
});

it('every CHECK of the schema has a name that a person can read in an error', async () => {
  const database = await createTestDatabase('checks');
  const db = openDatabase({ url: database.url, role: null, max: 2 });
  const { rows } = await db.pool.query<{ name: string }>(
    "select conname as name from pg_constraint where connamespace = 'countersign'::regnamespace and contype = 'c'",
  );
  expect(rows.length).toBeGreaterThan(10);
  expect(rows.filter(({ name }) => !name.includes(' ')).map(({ name }) => name)).toEqual([]);

  // And such an error tells its caller which rule it was.
  const run = await pausedRun(db, await announceWorker(db), [{}]);
  const broken = db.pool.query("update countersign.runs set status = 'lost' where id = $1", [run.id]);
  await expect(broken).rejects.toMatchObject({ constraint: 'a run is in a known status' });
  await db.close();
  await database.drop();
});

function inDatabase(url: string, database: string): string {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  return changed.href;
}
