import { type Database, readAsTenant } from '../postgres/index.ts';
import { isUuid } from '../uuid.ts';

/** One worker's turn at a run. The last one of a running run is its holder. */
export type RunClaim = {
  epoch: number;
  /** The worker's id, and its `host/pid`; null once the fleet has forgotten the worker. */
  worker: string;
  workerName: string | null;
  /** True when an earlier holder had let its hold run out. */
  takenOver: boolean;
  at: Date;
};

/** parameter: run id. Oldest first. Zero rows: nobody claimed it yet, or no such run of this tenant. */
const CLAIMS = `
  select (e.data ->> 'epoch')::integer as epoch, e.data ->> 'worker' as worker, w.name as "workerName",
    (e.data ->> 'taken_over')::boolean as "takenOver", e.at
  from countersign.events e left join countersign.workers w on w.id = (e.data ->> 'worker')::uuid
  where e.run_id = $1 and e.kind = 'run_claimed' order by e.n`;

/** Who has carried this run, from its own events. */
export async function listClaims(
  db: Database,
  options: { tenant: string; runId: string },
): Promise<RunClaim[]> {
  if (!isUuid(options.runId)) {
    return [];
  }
  return readAsTenant(db, options.tenant, async (tx) => {
    const { rows } = await tx.query(CLAIMS, [options.runId]);
    return rows as RunClaim[];
  });
}
