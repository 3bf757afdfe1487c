/** What a caller may say and what it gets back, and the check of the first. */
import { resolve } from 'node:path';
import { failed } from './failure.ts';

export type EmbeddedPostgresOptions = {
  /** Folder that keeps the cluster between runs; made if missing. A relative one is taken from the cwd. */
  dir: string;
  /** TCP port on 127.0.0.1, 1 to 65535. Default: a free one. Ignored when a live server is attached to. */
  port?: number;
  /**
   * Default true. False sets fsync, synchronous_commit and full_page_writes off: about ten times the commits,
   * and a power loss may destroy the cluster. For tests only. Ignored when a live server is attached to.
   */
  durable?: boolean;
  /** Database to create if missing and to name in `url`: lower-case letters, digits, `_`. Default `countersign`. */
  database?: string;
};

export type EmbeddedPostgres = {
  /** postgres:// URL with the superuser and its password: treat as a secret. */
  url: string;
  port: number;
  /** The postmaster's process id. */
  pid: number;
  /** True when the server was already running: whoever started it decides when it stops. */
  attached: boolean;
  /**
   * Fast shutdown: open transactions are rolled back, then the server exits. Resolves once it is gone; a second
   * call returns the same promise. Does nothing on an attached handle.
   */
  stop(): Promise<void>;
};

/** Every option with a value: what the rest of the folder works with. */
export type EmbeddedPostgresSettings = {
  dir: string;
  port: number | null;
  durable: boolean;
  database: string;
};

const KNOWN_OPTIONS = ['dir', 'port', 'durable', 'database'];
/** No quoting is ever needed, and 63 bytes is where Postgres would cut the name silently. */
const DATABASE_NAME = /^[a-z_][a-z0-9_]{0,62}$/;

/**
 * Fills in the defaults.
 *
 * @throws EMBEDDED_POSTGRES_FAILED options_invalid, before anything is touched.
 */
export function compileOptions(options: EmbeddedPostgresOptions): EmbeddedPostgresSettings {
  const unknown = Object.keys(options).filter((key) => !KNOWN_OPTIONS.includes(key));
  if (unknown.length > 0)
    throw invalid(`unknown option ${unknown.join(', ')}`, `use ${KNOWN_OPTIONS.join(', ')}`);

  const { dir, port = null, durable = true, database = 'countersign' } = options;
  if (typeof dir !== 'string' || dir === '')
    throw invalid('dir is empty', 'name a folder that may be written to');
  if (port !== null && !(Number.isInteger(port) && port >= 1 && port <= 65_535)) {
    throw invalid(`port ${port} is not a TCP port`, 'give 1 to 65535, or leave it out for a free one');
  }
  if (!DATABASE_NAME.test(database)) {
    throw invalid(`database name ${JSON.stringify(database)} is not plain`, `match ${DATABASE_NAME.source}`);
  }
  return { dir: resolve(dir), port, durable, database };
}

function invalid(what: string, fix: string): Error {
  return failed('options_invalid', what, fix);
}
