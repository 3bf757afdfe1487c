/**
 * The edge to Postgres, and the only importer of `pg`.
 *
 * Every protocol step is one SQL function (migrations/), called through `callFunction`: one round trip, one
 * transaction, which steps of many runs at once share (`callStep`). Invariants kept here: I11 (a process takes on its
 * role before its first statement, and reads happen inside a transaction that names the tenant) and I8's half (an answer
 * that did not arrive is an error, never a no).
 * A crash here leaves behind what Postgres always leaves: a transaction that happened or did not.
 */
export { assertDurable, assertSchema } from './checks.ts';
export {
  callFunction,
  callStep,
  type Database,
  inTransaction,
  openDatabase,
  type ProcessRole,
  type Queryable,
  readAsTenant,
  SteadyClient,
} from './database.ts';
export { listen } from './listen.ts';
export { type MigrationResult, migrate } from './migrate.ts';
export { packageRoot } from './package-root.ts';
