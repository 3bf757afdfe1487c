import { setTimeout as sleep } from 'node:timers/promises';
import { type Database, readAsTenant } from '../postgres/index.ts';
import type { Scope } from './trouble.ts';

export type WatchedRun = { tenant: string; id: string };

/** A run that nobody but a person moves any further, or that has ended. */
export const AT_REST: readonly string[] = [
  'completed',
  'failed',
  'cancelled',
  'superseded',
  'awaiting_approval',
  'awaiting_reconciliation',
  'parked',
  'quarantined',
  'dead_lettered',
];

const NOW = 'select extract(epoch from clock_timestamp())::float8 * 1000 as moment';

/** Parameters: moment in ms, tenant or null, runs that were given something. Unended now, or ended since. */
const WATCHED = `
  select tenant, id from countersign.runs
  where (ended_at is null or ended_at >= to_timestamp($1::float8 / 1000) or id = any ($3::uuid[]))
    and ($2::text is null or tenant = $2) order by created_at, id`;

/**
 * Parameters: runs, ms that are left. Those that the fleet itself has still something to do for in that time, and their
 * status. Evidence that is asked for only later, or that only a person has, is not waited for: an
 * idempotent action that may not be sent again stays due.
 */
const RESTLESS = `
  select r.tenant, r.id, r.status from countersign.runs r
  where r.id = any ($1::uuid[]) and (
    r.status in ('ready', 'running')
    or exists (select from countersign.outbox o
      where o.tenant = r.tenant and o.run_id = r.id and o.sent_at is null and o.dead_at is null)
    or exists (select from countersign.actions a
      where a.tenant = r.tenant and a.run_id = r.id and a.state in ('dispatched', 'outcome_unknown')
        and a.reconcile_after < clock_timestamp() + $2 * interval '1 millisecond'
        and (a.state = 'dispatched' or a.recovery <> 'idempotent'
          or a.reconcile_after > clock_timestamp() - interval '1 minute')))`;

const LOOK_MS = 250;

const SEES_ALL = 'select rolsuper or rolbypassrls as sees from pg_roles where rolname = current_user';

/**
 * Whose runs a login role may look at: every tenant's, unless row-level security holds it back.
 *
 * @param asked one tenant, or null for as many as may be. @param usual the one that is seen when not all are.
 */
export async function scopeOf(db: Database, asked: string | null, usual: string): Promise<Scope> {
  if (asked !== null) {
    return { tenant: asked };
  }
  const { rows } = await db.pool.query<{ sees: boolean }>(SEES_ALL);
  return { tenant: rows[0]?.sees === true ? null : usual };
}

/** The database's clock, in ms. */
export async function momentOf(db: Database): Promise<number> {
  return readAsTenant(db, '', async (tx) => {
    const { rows } = await tx.query(NOW);
    return (rows[0] as { moment: number }).moment;
  });
}

/** Runs that were under way or ended since a moment, and those that were given a copy of their job. */
export async function runsSince(
  db: Database,
  options: Scope & { since: number; given: readonly string[] },
): Promise<WatchedRun[]> {
  const { tenant, since, given } = options;
  return readAsTenant(db, tenant ?? '', async (tx) => {
    const { rows } = await tx.query(WATCHED, [since, tenant, given]);
    return rows as WatchedRun[];
  });
}

export type RestlessRun = WatchedRun & { status: string };

/**
 * Waits until the fleet has nothing left to do for these runs, `withinMs` at most.
 *
 * @returns the runs that are not at rest even then.
 */
export async function untilAtRest(
  db: Database,
  options: Scope & { runs: readonly WatchedRun[]; withinMs: number },
): Promise<RestlessRun[]> {
  const { tenant, runs, withinMs } = options;
  const ids = runs.map(({ id }) => id);
  const end = performance.now() + withinMs;
  for (;;) {
    const left = Math.max(0, end - performance.now());
    const restless = await readAsTenant(
      db,
      tenant ?? '',
      async (tx) => (await tx.query(RESTLESS, [ids, left])).rows as RestlessRun[],
    );
    if (restless.length === 0 || left === 0) {
      return restless;
    }
    await sleep(LOOK_MS);
  }
}
