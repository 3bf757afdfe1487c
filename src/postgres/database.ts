import pg from 'pg';
import { CountersignError } from '../errors.ts';
import { gate } from '../failpoints.ts';
import { Batches, LOCK_TIMEOUT } from './batches.ts';
import { encodeCall, rowOf, type StepCall, type Steps, statementFor } from './steps.ts';

/** Which database role a process takes on; the migration grants each only what its job needs. */
export type ProcessRole = 'countersign_api' | 'countersign_worker' | 'countersign_relay';

/** Anything that runs one statement: a pool, or a client inside the caller's transaction. */
export type Queryable = {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
};

export type Database = {
  readonly pool: pg.Pool;
  /** See `callStep`. */
  readonly batches: Batches;
  /**
   * Wakes whoever listens on `channel`: soon, never awaited, never an error. Not for truth: it may get lost. Calls
   * that come while one is under way become one more after it.
   */
  notify(channel: string): void;
  /** Ends every connection; waits for statements under way. */
  close(): Promise<void>;
};

/**
 * A statement without an answer for this long is given up and its connection destroyed: a connection may die without a
 * word, and a loop must not wait for it. Every protocol step takes milliseconds.
 */
const NO_ANSWER_MS = 10_000;

/**
 * Opens a pool. Nothing is connected before the first statement.
 *
 * `idleTimeoutMillis: 0`: idle clients closed after a burst all reconnect together at the next one, which was
 * measured as 300 to 500 ms of stall. The `error` listener matters: without it a killed backend ends the process.
 *
 * @param options.url `postgres://…`.
 * @param options.role taken on by each connection before its first statement; null keeps the login role (migrations).
 * @param options.max connections, default 10.
 * @param options.onError told about idle connections that broke; the pool replaces them by itself.
 */
export function openDatabase(options: {
  url: string;
  role: ProcessRole | null;
  max?: number;
  name?: string;
  /** Default 10 s. */
  noAnswerMs?: number;
  onError?: (error: Error) => void;
}): Database {
  const role = options.role === null ? '' : `-c role=${options.role}`;
  const open = (more: pg.PoolConfig): pg.Pool => {
    const opened = new pg.Pool({
      connectionString: options.url,
      max: options.max ?? 10,
      idleTimeoutMillis: 0,
      connectionTimeoutMillis: 10_000,
      keepAlive: true,
      query_timeout: options.noAnswerMs ?? NO_ANSWER_MS,
      application_name: options.name ?? 'countersign',
      options: role,
      ...more,
    });
    opened.on('error', options.onError ?? (() => undefined));
    return opened;
  };
  const pool = open({});
  const batchPool = open({ max: BATCH_CONNECTIONS, options: `${role} ${LOCK_TIMEOUT}` });
  return {
    pool,
    batches: new Batches({ pool: batchPool, alone: (statement) => pool.query(statement) }),
    notify: notifier(pool),
    close: async () => {
      await Promise.all([batchPool.end(), pool.end()]);
    },
  };
}

/** Opened only when calls meet, and as many as there are batches at once: about one for each kind of step. */
const BATCH_CONNECTIONS = 6;

/** A notification of its own: in a protocol step's transaction it would keep a cluster-wide lock until that is on disk. */
const NOTIFY = {
  name: 'cs_notify',
  text: "select set_config('synchronous_commit', 'off', true), pg_notify($1, '')",
};

function notifier(pool: pg.Pool): Database['notify'] {
  const underWay = new Map<string, { again: boolean }>();
  const send = (channel: string): void => {
    const state = { again: false };
    underWay.set(channel, state);
    pool
      .query({ ...NOTIFY, values: [channel] })
      .catch(() => undefined)
      .finally(() => {
        underWay.delete(channel);
        if (state.again && !pool.ending) {
          send(channel);
        }
      });
  };
  return (channel) => {
    const state = underWay.get(channel);
    if (state === undefined) {
      send(channel);
    } else {
      state.again = true;
    }
  };
}

/**
 * A client that listens to its errors from birth. `pg` tells every client when its connection ends, a pool listens to
 * its idle ones only, and an error that nobody listens to ends the process.
 */
export class SteadyClient extends pg.Client {
  constructor(config?: string | pg.ClientConfig) {
    super(config);
    this.on('error', () => undefined);
  }
}

/** A function's name and arity name its prepared statement, so each connection parses it once. */
const texts = new Map<string, string>();

function single(name: string, values: readonly unknown[]): pg.QueryConfig {
  const key = `${name}/${values.length}`;
  let text = texts.get(key);
  if (text === undefined) {
    text = `select * from countersign.${name}(${values.map((_, i) => `$${i + 1}`).join(', ')})`;
    texts.set(key, text);
  }
  return { name: `cs_${name}`, text, values: values as unknown[] };
}

/**
 * Calls one protocol function and returns its rows. Pass the database for a transaction of its own, or a client to
 * join the caller's.
 *
 * @throws POSTGRES_UNAVAILABLE when no answer came: the step may or may not have happened, so re-read before deciding.
 * @throws SCHEMA_MISSING when the function does not exist. @throws POSTGRES_REFUSED for anything else.
 */
export async function callFunction<Row>(
  db: Database | Queryable,
  name: string,
  values: readonly unknown[],
): Promise<Row[]> {
  const target = 'pool' in db ? db.pool : db;
  return gated(name, async () => (await (target as pg.Pool).query(single(name, values))).rows as Row[]);
}

/**
 * Makes one call of a protocol step that many runs take at once, and returns its row. Calls of one function that come
 * together, or while another is under way, share a statement and a commit (`Batches`). On a client it joins the caller's
 * transaction.
 *
 * @throws as `callFunction`.
 */
export async function callStep<Name extends keyof Steps>(
  db: Database | Queryable,
  name: Name,
  ask: StepCall<Name>,
): Promise<unknown> {
  return gated(name, async () => {
    if ('batches' in db) {
      return db.batches.call(name, ask);
    }
    const { rows } = await (db as pg.ClientBase).query(statementFor(name, [encodeCall(ask)]));
    return rowOf(rows, 0);
  });
}

async function gated<T>(name: string, call: () => Promise<T>): Promise<T> {
  try {
    return await gate('postgres', name, call);
  } catch (error) {
    throw classified(error, name);
  }
}

/**
 * Runs `work` in one transaction and commits it. A client whose rollback fails is destroyed, so no borrower ever
 * inherits an open transaction. Never await the network inside `work`.
 */
export async function inTransaction<T>(db: Database, work: (tx: Queryable) => Promise<T>): Promise<T> {
  const client = await db.pool.connect().catch((error: unknown) => {
    throw classified(error, 'connect');
  });
  let broken = false;
  // The pool listens to its idle clients only: without a listener here a killed backend would end the process.
  const onError = () => {
    broken = true;
  };
  client.on('error', onError);
  try {
    await client.query('begin');
    const result = await work(client);
    await gate('postgres', 'commit', () => client.query('commit'));
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => {
      broken = true;
    });
    throw error instanceof CountersignError ? error : classified(error, 'transaction');
  } finally {
    client.off('error', onError);
    client.release(broken);
  }
}

/** Runs read-only `work` with the tenant named for just this transaction; without it row-level security shows nothing. */
export async function readAsTenant<T>(
  db: Database,
  tenant: string,
  work: (tx: Queryable) => Promise<T>,
): Promise<T> {
  return inTransaction(db, async (tx) => {
    await tx.query('select countersign.as_tenant($1)', [tenant]);
    return work(tx);
  });
}

/** Errors of which nobody knows whether the statement took effect, by SQLSTATE class or socket code. */
const NO_ANSWER = /^(08|57P0|53300|ECONN|EPIPE|ETIMEDOUT|ENOTFOUND|EHOSTUNREACH|EAI_AGAIN)/;
const NO_ANSWER_TEXT =
  /Query read timeout|Connection terminated|not queryable|connection timeout|timeout exceeded when trying to connect|Cannot use a pool after/i;

/**
 * What an error of `pg` means to a caller: ours, typed, without the server's text.
 *
 * @param step what was being done, for the message.
 */
export function classified(error: unknown, step: string): unknown {
  if (!(error instanceof Error) || error instanceof CountersignError) {
    return error;
  }
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  if (NO_ANSWER.test(code) || NO_ANSWER_TEXT.test(error.message)) {
    return new CountersignError(
      'POSTGRES_UNAVAILABLE',
      `Postgres gave no answer to ${step}; check DATABASE_URL and the server.`,
      {
        details: { step, sqlstate: code },
        cause: error,
      },
    );
  }
  if (/^(28|3D000)/.test(code)) {
    return new CountersignError(
      'CONFIG_INVALID',
      `Postgres refused the login or has no such database (SQLSTATE ${code}); check DATABASE_URL.`,
      { details: { field: 'DATABASE_URL', sqlstate: code }, cause: error },
    );
  }
  // 22023 at connect: the role that the migrations make is missing.
  if (code === '42883' || code === '3F000' || code === '42P01' || (code === '22023' && step === 'connect')) {
    return new CountersignError(
      'SCHEMA_MISSING',
      `The database lacks what ${step} needs; run "countersign migrate" first.`,
      {
        details: { step, sqlstate: code },
        cause: error,
      },
    );
  }
  if (/^[0-9A-Z]{5}$/.test(code)) {
    // The server's text may quote values; only its state and the constraint's name go on.
    const constraint =
      'constraint' in error && typeof error.constraint === 'string' ? error.constraint : null;
    return new CountersignError('POSTGRES_REFUSED', `Postgres refused ${step} (SQLSTATE ${code}).`, {
      details: { step, sqlstate: code, constraint },
      cause: error,
    });
  }
  return error;
}
