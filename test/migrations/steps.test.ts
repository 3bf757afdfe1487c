/** What TypeScript says of a step's call and what its SQL type says are the same fields. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { openDatabase } from '../../src/postgres/index.ts';
import { createTestDatabase } from '../support/database.ts';

const source = readFileSync(path.join(import.meta.dirname, '../../src/postgres/steps.ts'), 'utf8');

/** `claim_runs` → `claim_call`: the fields between the braces that follow the function's name. */
const inTypeScript = Object.fromEntries(
  [
    ...(/export type Steps = \{([\s\S]*?)\n\};/.exec(source)?.[1] ?? '').matchAll(
      /^ {2}(\w+?)_\w+: \{([^}]*)\}/gm,
    ),
  ].map(([, name, fields = '']) => [
    `${name}_call`,
    ['n', 'run', ...[...fields.matchAll(/(\w+):/g)].map((match) => match[1] ?? '')].sort(),
  ]),
);

it('each call type in SQL has the fields that its calls are made of', async () => {
  const database = await createTestDatabase('steps');
  const db = openDatabase({ url: database.url, role: null, max: 1 });
  try {
    const { rows } = await db.pool.query<{ name: string; fields: string[] }>(`
      select c.relname as name, array_agg(a.attname::text order by a.attname) as fields
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
      where c.relnamespace = 'countersign'::regnamespace and c.relkind = 'c' and c.relname like '%\\_call'
      group by c.relname`);
    expect(Object.keys(inTypeScript)).toHaveLength(6);
    expect(Object.fromEntries(rows.map(({ name, fields }) => [name, fields.sort()]))).toEqual(inTypeScript);
  } finally {
    await db.close();
    await database.drop();
  }
});
