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

/** Parameter: runs. Those that the fleet itself has still something to do for, and their status. */
const RESTLESS = `
  select r.tenant, r.id, r.status from countersign.runs r
  where r.id = any ($1::uuid[]) and (
    r.status in ('ready', 'running')
    or exists (select from countersign.outbox o
      where o.tenant = r.tenant and o.run_id = r.id and o.sent_at is null and o.dead_at is null)
    or exists (select from countersign.actions a
      where a.tenant = r.tenant and a.run_id = r.id and a.state in ('dispatched', 'outcome_unknown')
        and a.reconcile_after is not null))`;

const LOOK_MS = 250;

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
    const restless = await readAsTenant(
      db,
      tenant ?? '',
      async (tx) => (await tx.query(RESTLESS, [ids])).rows as RestlessRun[],
    );
    if (restless.length === 0 || performance.now() > end) {
      return restless;
    }
    await sleep(LOOK_MS);
  }
}
