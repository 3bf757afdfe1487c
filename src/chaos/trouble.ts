import { randomUUID } from 'node:crypto';
import { type Database, readAsTenant } from '../postgres/index.ts';
import type { ResumeJob, ResumeQueue } from '../queue/index.ts';

/** Whose runs: one tenant's, or (null) those of every tenant that the login role may see. */
export type Scope = { tenant: string | null };

/** Parameters: share, how long ago a run may have ended in ms, how many at most, tenant or null. */
const SOME_RUNS = `
  select tenant, id as "runId", wake from countersign.runs
  where (ended_at is null or ended_at > clock_timestamp() - $2 * interval '1 millisecond')
    and random() < $1 and ($4::text is null or tenant = $4)
  order by random() limit $3`;

/**
 * Publishes another copy of the current job of a random share of the runs that have not ended, or only just: a late
 * copy must be as harmless as an early one.
 *
 * @returns the jobs, one for each copy.
 */
export async function duplicateJobs(
  db: Database,
  queue: ResumeQueue,
  options: Scope & { share: number; endedWithinMs: number; atMost: number },
): Promise<ResumeJob[]> {
  const { tenant, share, endedWithinMs, atMost } = options;
  const jobs = await readAsTenant(db, tenant ?? '', async (tx) => {
    const { rows } = await tx.query(SOME_RUNS, [share, endedWithinMs, atMost, tenant]);
    return rows as ResumeJob[];
  });
  if (jobs.length > 0) {
    await queue.publish(jobs.map((job) => ({ id: randomUUID(), job })));
  }
  return jobs;
}

/** Parameter: how many at most. Connections of this package's processes, whatever they are doing just then. */
const DROP = `
  select pg_terminate_backend(chosen.pid) as dropped from (
    select pid from pg_stat_activity
    where datname = current_database() and application_name like 'countersign%' and pid <> pg_backend_pid()
    order by random() limit $1) chosen`;

/** Ends connections of the fleet to Postgres, from the server's side. @returns how many. */
export async function dropConnections(db: Database, atMost: number): Promise<number> {
  const { rows } = await db.pool.query<{ dropped: boolean }>(DROP, [atMost]);
  return rows.filter(({ dropped }) => dropped).length;
}
