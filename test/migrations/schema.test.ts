import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { describeSchema, schemaFile } from '../support/schema.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase('schema');
});

afterAll(() => database?.drop());

it('migrations/schema.sql is what the migrations make; "npm run schema" writes it', async () => {
  expect(await describeSchema(database.url)).toBe(await readFile(schemaFile(), 'utf8'));
});
