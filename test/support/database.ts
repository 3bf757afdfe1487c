/** A database of its own for each test file (or test): a clone of the migrated template, 50 to 100 ms. */
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';

export type TestDatabase = {
  /** Superuser URL of the clone. */
  url: string;
  /** Drops the clone, ending whatever connections are left. */
  drop(): Promise<void>;
};

/** Postgres cuts longer names; the random part must survive. */
const PREFIX_CHARS = 40;

/**
 * Clones the template under a name no other call gets.
 *
 * @param name what to call it in pg_stat_activity and logs; any text, reduced to letters, digits and `_`.
 */
export async function createTestDatabase(name = 'test'): Promise<TestDatabase> {
  const prefix = name
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '_')
    .slice(0, PREFIX_CHARS);
  const database = `t_${prefix}_${randomBytes(6).toString('hex')}`;
  await administer(`CREATE DATABASE "${database}" TEMPLATE "${inject('templateDatabase')}"`);
  const url = new URL(inject('postgresUrl'));
  url.pathname = `/${database}`;
  return {
    url: url.href,
    drop: () => administer(`DROP DATABASE IF EXISTS "${database}" WITH (FORCE)`),
  };
}

async function administer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: inject('postgresUrl') });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
