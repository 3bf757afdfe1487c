/** Real sessions, one statement at a time each, and the means to stop one in the middle of its statement. */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Database, ProcessRole } from '../../src/postgres/index.ts';

/** One real session, as one role, that runs one statement at a time. */
export async function openSession(
  url: string,
  role: ProcessRole | 'none',
  name = 'session',
): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    application_name: name,
    ...(role === 'none' ? {} : { options: `-c role=${role}` }),
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

/**
 * A gate inside a statement: every insert or update of a row of `table` by a session named `slow…` stops before the
 * row is written, holding whatever it has locked by then, until `open()`.
 */
export async function gateInside(
  url: string,
  table: string,
  event: 'insert' | 'update' | 'insert or update',
) {
  const keeper = await openSession(url, 'none', 'gate keeper');
  const key = 1 + Math.floor(Math.random() * 1_000_000_000);
  await keeper.query(`
    create or replace function public.gate_${key}() returns trigger language plpgsql as $$
    begin
      if current_setting('application_name') like 'slow%' then
        perform pg_advisory_xact_lock_shared(${key});
      end if;
      return new;
    end $$;
    create trigger gate_${key} before ${event} on countersign.${table} for each row execute function public.gate_${key}();
    select pg_advisory_lock(${key});`);
  let closed = true;
  return {
    /** Resolves when `count` sessions stand before the gate. */
    async reached(count = 1): Promise<void> {
      await until(async () => {
        const { rows } = await keeper.query<{ n: number }>(
          "select count(*)::integer as n from pg_locks where locktype = 'advisory' and not granted and objid = $1",
          [key],
        );
        return (rows[0]?.n ?? 0) >= count;
      }, `${count} sessions at the gate in ${table}`);
    },
    async open(): Promise<void> {
      if (closed) {
        closed = false;
        await keeper.query('select pg_advisory_unlock($1)', [key]);
      }
    },
    async remove(): Promise<void> {
      await this.open();
      await keeper.query(
        `drop trigger gate_${key} on countersign.${table}; drop function public.gate_${key}()`,
      );
      await keeper.end();
    },
  };
}

/** Resolves when the session waits for a row lock that somebody else holds. */
export async function waitsForLock(admin: Database, session: pg.Client): Promise<void> {
  const pid = (session as unknown as { processID: number }).processID;
  await until(async () => {
    const { rows } = await admin.pool.query<{ n: number }>('select cardinality(pg_blocking_pids($1)) as n', [
      pid,
    ]);
    return (rows[0]?.n ?? 0) > 0;
  }, `session ${pid} to wait for a lock`);
}

export async function until(
  holds: () => Promise<boolean> | boolean,
  what: string,
  timeoutMs = 10_000,
): Promise<void> {
  const end = Date.now() + timeoutMs;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`waited ${timeoutMs} ms for ${what}`);
    await sleep(10);
  }
}
