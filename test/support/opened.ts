/** Everything a database holds, as text: sealed columns opened with the fleet's keys, the rest as it stands. */
import type { KeyPurpose, SealBinding } from '../../src/seal/index.ts';
import type { Fleet } from './fleet.ts';

type Row = Record<string, unknown> & { tenant: string };

/** Where each sealed column is bound; the purposes are tried in turn. */
const SEALED: Record<string, [column: string, row: (row: Row) => Partial<SealBinding>][]> = {
  checkpoints: [['sealed', (row) => ({ row: String(row.run_id), sequence: Number(row.number) })]],
  model_calls: [['sealed', (row) => ({ row: `${row.run_id}/${row.segment}/${row.path}#${row.n}` })]],
  actions: [
    ['sealed_arguments', (row) => ({ row: String(row.id) })],
    ['sealed_result', (row) => ({ row: String(row.id) })],
  ],
  receipts: [['sealed', (row) => ({ row: String(row.id) })]],
  approvals: [
    ['sealed_review', (row) => ({ row: String(row.id) })],
    ['sealed_words', (row) => ({ row: String(row.id) })],
  ],
  runs: [['sealed_output', (row) => ({ row: String(row.id) })]],
  tool_results: [['sealed', (row) => ({ row: `${row.run_id}/${row.call_id}` })]],
  session_items: [['sealed', (row) => ({ row: String(row.session_id), sequence: Number(row.position) })]],
};

/** Every sealed column of the schema, as `table.column`. */
export async function sealedColumns(fleet: Fleet): Promise<string[]> {
  const columns = await fleet.rows<{ name: string }>(
    `select table_name || '.' || column_name as name from information_schema.columns
     where table_schema = 'countersign' and column_name like 'sealed%' order by 1`,
  );
  return columns.map(({ name }) => name);
}

/** One text per opened column, named `table.column`. */
export async function openEverything(fleet: Fleet): Promise<{ where: string; text: string }[]> {
  const opened: { where: string; text: string }[] = [];
  for (const [table, columns] of Object.entries(SEALED)) {
    for (const row of await fleet.rows<Row>(`select * from countersign.${table}`)) {
      for (const [column, bind] of columns) {
        const sealed = row[column];
        if (Buffer.isBuffer(sealed)) {
          const binding = { tenant: row.tenant, table, column, row: '', ...bind(row) };
          opened.push({ where: `${table}.${column}`, text: openEither(fleet, sealed, binding) });
        }
      }
    }
  }
  return opened;
}

function openEither(fleet: Fleet, sealed: Buffer, binding: SealBinding): string {
  const failures: unknown[] = [];
  for (const purpose of ['state', 'review'] satisfies KeyPurpose[]) {
    try {
      return fleet.keys.openText(purpose, sealed, binding);
    } catch (error) {
      failures.push(error);
    }
  }
  throw failures[0];
}

/** Every row of every table of ours and of the queue's, as JSON text. */
export async function dumpTables(fleet: Fleet): Promise<string> {
  const tables = await fleet.rows<{ name: string }>(
    `select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname in ('countersign', 'bullmq')`,
  );
  const dumps = await Promise.all(
    tables.map(({ name }) => fleet.rows<{ text: string }>(`select to_jsonb(t)::text as text from ${name} t`)),
  );
  return dumps
    .flat()
    .map(({ text }) => text)
    .join('\n');
}
