import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { migrate, packageRoot } from '../../src/postgres/index.ts';

/** Each query gives the lines of one part of the dump, in a stable order. */
const PARTS: [title: string, sql: string][] = [
  [
    'Tables',
    `select format('table %s', c.relname) || coalesce(E'\\n  -- ' || obj_description(c.oid), '') || E'\\n' ||
       (select string_agg(format('  %s %s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
          case when a.attnotnull then ' not null' else '' end,
          coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') || case a.attidentity when 'a' then ' generated always as identity' else '' end)
          || coalesce('  -- ' || col_description(c.oid, a.attnum), ''), E'\\n' order by a.attnum)
        from pg_attribute a left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
       || coalesce(E'\\n' || (select string_agg(format('  constraint %I %s', k.conname, pg_get_constraintdef(k.oid)), E'\\n' order by k.conname)
          from pg_constraint k where k.conrelid = c.oid and k.contype <> 'n'), '')
       || coalesce(E'\\n' || (select string_agg('  ' || replace(pg_get_indexdef(i.indexrelid), 'countersign.', ''), E'\\n' order by i.indexrelid::regclass::text)
          from pg_index i where i.indrelid = c.oid and not exists (select 1 from pg_constraint k where k.conindid = i.indexrelid and k.contype in ('p', 'u'))), '')
       || coalesce(E'\\n' || (select string_agg('  ' || replace(pg_get_triggerdef(g.oid), 'countersign.', ''), E'\\n' order by g.tgname)
          from pg_trigger g where g.tgrelid = c.oid and not g.tgisinternal), '')
       || case when c.relrowsecurity then E'\\n  row level security' || case when c.relforcerowsecurity then ', forced' else '' end else '' end
       || coalesce(E'\\n' || (select string_agg(format('  policy %I for %s to %s using (%s)', p.polname, p.polcmd,
            coalesce((select string_agg(r.rolname, ', ' order by r.rolname) from pg_roles r where r.oid = any (p.polroles)), 'public'),
            pg_get_expr(p.polqual, p.polrelid)), E'\\n' order by p.polname) from pg_policy p where p.polrelid = c.oid), '') as line
     from pg_class c where c.relnamespace = 'countersign'::regnamespace and c.relkind = 'r' order by c.relname`,
  ],
  [
    'Functions',
    `select format('function %s(%s) returns %s language %s%s owner %s', p.proname, pg_get_function_identity_arguments(p.oid),
       pg_get_function_result(p.oid), l.lanname, case when p.prosecdef then ' security definer' else '' end,
       case when r.rolname = 'countersign_loops' then r.rolname else 'migrator' end)
       || E'\\n  body sha256 ' || encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex') as line
     from pg_proc p join pg_language l on l.oid = p.prolang join pg_roles r on r.oid = p.proowner
     where p.pronamespace = 'countersign'::regnamespace order by p.proname, pg_get_function_identity_arguments(p.oid)`,
  ],
  [
    'Grants',
    `select line from (
       select format('%s: %s on %s', grantee, string_agg(privilege_type, ', ' order by privilege_type), table_name) as line
         from information_schema.role_table_grants where table_schema = 'countersign' and grantee like 'countersign\\_%' group by grantee, table_name
       union all
       select format('%s: %s (%s) on %s', g.grantee, g.privilege_type, string_agg(g.column_name, ', ' order by g.column_name), g.table_name)
         from information_schema.role_column_grants g
         where g.table_schema = 'countersign' and g.grantee like 'countersign\\_%' and not exists (
           select 1 from information_schema.role_table_grants t where t.table_schema = g.table_schema and t.table_name = g.table_name
             and t.grantee = g.grantee and t.privilege_type = g.privilege_type)
         group by g.grantee, g.table_name, g.privilege_type
       union all
       select format('%s: execute %s', r.rolname, string_agg(p.proname, ', ' order by p.proname))
         from pg_proc p join pg_roles r on has_function_privilege(r.oid, p.oid, 'execute')
         where p.pronamespace = 'countersign'::regnamespace and r.rolname like 'countersign\\_%' group by r.rolname) grants
     order by line collate "C"`,
  ],
];

/** The schema as the catalogs have it, as text that a reviewer can read and CI can compare. */
export async function describeSchema(url: string): Promise<string> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const parts = [];
    for (const [title, sql] of PARTS) {
      const { rows } = await client.query<{ line: string }>(sql);
      parts.push(`-- ${title}\n\n${rows.map((row) => row.line).join(title === 'Tables' ? '\n\n' : '\n')}`);
    }
    return `-- The schema after all migrations, read from the catalogs of Postgres 18. Not for running.\n-- Written by "npm run schema"; test/migrations/schema.test.ts fails when it is stale.\n\n${parts.join('\n\n')}\n`;
  } finally {
    await client.end();
  }
}

export function schemaFile(): string {
  return path.join(packageRoot(), 'migrations', 'schema.sql');
}

/** `npm run schema`: an embedded Postgres, the migrations, the dump. */
export async function writeSchema(): Promise<void> {
  const dir = await mkdtemp(path.join(tmpdir(), 'countersign-schema-'));
  const postgres = await startEmbeddedPostgres({ dir, durable: false });
  try {
    await migrate({ url: postgres.url });
    await writeFile(schemaFile(), await describeSchema(postgres.url));
  } finally {
    await postgres.stop();
    await rm(dir, { recursive: true, force: true });
  }
}
