import { randomUUID } from 'node:crypto';
import { CountersignError } from '../errors.ts';
import { type Database, readAsTenant } from '../postgres/index.ts';
import type { ResumeQueue } from '../queue/index.ts';
import { isUuid } from '../uuid.ts';

/** parameter: run id. Zero rows: no such run of this tenant. */
const CURRENT_WAKE = 'select id, wake, status from countersign.runs where id = $1';

export type Duplicates = { runId: string; wake: number; status: string; jobIds: string[] };

/**
 * Publishes extra copies of a run's current resume job straight to the queue, each under a job id of its own, so that
 * the queue cannot tell them apart from real ones. Harmless by design: this exists to show it.
 *
 * @throws RUN_NOT_FOUND; REDIS_UNAVAILABLE when the queue does not answer.
 */
export async function publishDuplicates(
  db: Database,
  queue: ResumeQueue,
  options: { tenant: string; runId: string; copies: number },
): Promise<Duplicates> {
  const { tenant, copies } = options;
  const rows = isUuid(options.runId)
    ? await readAsTenant(db, tenant, async (tx) => (await tx.query(CURRENT_WAKE, [options.runId])).rows)
    : [];
  const run = rows[0] as { id: string; wake: number; status: string } | undefined;
  if (run === undefined) {
    throw new CountersignError('RUN_NOT_FOUND', 'No such run; "countersign runs" lists yours.', {
      details: { runId: options.runId.slice(0, 64) },
    });
  }
  const jobIds = Array.from({ length: copies }, () => randomUUID());
  await queue.publish(jobIds.map((id) => ({ id, job: { tenant, runId: run.id, wake: run.wake } })));
  return { runId: run.id, wake: run.wake, status: run.status, jobIds };
}
