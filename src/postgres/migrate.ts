import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { CountersignError } from '../errors.ts';
import { classified, openDatabase } from './database.ts';
import { packageRoot } from './package-root.ts';

export type MigrationResult = {
  /** Numbers applied by this call, in order; empty when the schema was current. */
  applied: number[];
  /** The schema's number afterwards. */
  current: number;
};

type Migration = { number: number; name: string; sql: string; digest: string };

/** Reads migrations/NNNN_name.sql in order. */
export async function readMigrations(): Promise<Migration[]> {
  const folder = path.join(packageRoot(), 'migrations');
  const names = (await readdir(folder)).filter((name) => /^\d{4}_.*\.sql$/.test(name)).sort();
  return Promise.all(
    names.map(async (name) => {
      const sql = await readFile(path.join(folder, name), 'utf8');
      return {
        number: Number(name.slice(0, 4)),
        name,
        sql,
        digest: createHash('sha256').update(sql).digest('hex'),
      };
    }),
  );
}

/** One arbitrary number, so that migrators of one database queue up. */
const MIGRATION_LOCK = 7_302_604_111;

/**
 * Brings the schema up to date. Safe to run from many processes at once: each migration is one transaction that takes
 * a lock first and re-reads what is applied.
 *
 * @throws SCHEMA_NEWER when the database knows a migration that this package does not.
 * @throws SCHEMA_CHANGED when an applied migration's text differs from this package's.
 */
export async function migrate(options: { url: string }): Promise<MigrationResult> {
  const db = openDatabase({ url: options.url, role: null, max: 1, name: 'countersign migrate' });
  const applied: number[] = [];
  try {
    const migrations = await readMigrations();
    for (const migration of migrations) {
      if (await applyOnce(db, migration, migrations)) {
        applied.push(migration.number);
      }
    }
    return { applied, current: migrations.at(-1)?.number ?? 0 };
  } finally {
    await db.close();
  }
}

/** Returns true when this call applied it, false when it was applied before. */
async function applyOnce(
  db: ReturnType<typeof openDatabase>,
  migration: Migration,
  all: Migration[],
): Promise<boolean> {
  const client = await db.pool.connect().catch((error: unknown) => {
    throw classified(error, 'connect');
  });
  try {
    await client.query('begin');
    await client.query('select pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
    await client.query('create schema if not exists countersign');
    await client.query('set local search_path = countersign');
    await client.query(
      'create table if not exists migrations (number integer primary key, name text not null, digest text not null, applied_at timestamptz not null default clock_timestamp())',
    );
    const known = await client.query<{ number: number; digest: string }>(
      'select number, digest from migrations',
    );
    assertKnown(known.rows, all);
    if (known.rows.some((row) => row.number === migration.number)) {
      await client.query('commit');
      return false;
    }
    await client.query('insert into migrations (number, name, digest) values ($1, $2, $3)', [
      migration.number,
      migration.name,
      migration.digest,
    ]);
    await client.query(migration.sql);
    await client.query('commit');
    return true;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw classified(error, `migration ${migration.number}`);
  } finally {
    client.release();
  }
}

function assertKnown(rows: { number: number; digest: string }[], all: Migration[]): void {
  for (const row of rows) {
    const mine = all.find((migration) => migration.number === row.number);
    if (mine === undefined) {
      throw new CountersignError(
        'SCHEMA_NEWER',
        `The database has migration ${row.number}, which this version does not know; upgrade countersign.`,
        {
          details: { migration: row.number },
        },
      );
    }
    if (mine.digest !== row.digest) {
      throw new CountersignError(
        'SCHEMA_CHANGED',
        `Migration ${mine.name} differs from the one that was applied; applied migrations are never edited.`,
        {
          details: { migration: row.number },
        },
      );
    }
  }
}
