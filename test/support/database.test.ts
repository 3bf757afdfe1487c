import pg from 'pg';
import { expect, test } from 'vitest';
import { createTestDatabase } from './database.ts';

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

test('each test database is a migrated clone that shares nothing with the others', async () => {
  const [one, two] = await Promise.all([createTestDatabase('same name'), createTestDatabase('same name')]);
  try {
    await withClient(one.url, (client) => client.query('CREATE TABLE only_here (n int)'));
    const count = `SELECT count(*)::int AS n FROM pg_tables
      WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`;
    const tablesOf = async (url: string): Promise<number> =>
      withClient(url, async (client) => (await client.query<{ n: number }>(count)).rows[0]?.n ?? 0);
    expect(await tablesOf(two.url)).toBeGreaterThan(0);
    expect(await tablesOf(one.url)).toBe((await tablesOf(two.url)) + 1);
  } finally {
    await Promise.all([one.drop(), two.drop()]);
  }
});

test('drop ends the connections that a test left open', async () => {
  const database = await createTestDatabase();
  const left = new pg.Client({ connectionString: database.url });
  const ended = new Promise<Error>((resolve) => left.on('error', resolve));
  await left.connect();
  await database.drop();
  expect(await ended).toMatchObject({ code: '57P01' });
  await expect(withClient(database.url, async () => undefined)).rejects.toMatchObject({ code: '3D000' });
});
