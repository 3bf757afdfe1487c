import { CountersignError } from '../errors.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import { isUuid } from '../uuid.ts';

/**
 * Lets a quarantined run go on after a named operator has looked. Its void approvals stay void, and state that is still
 * damaged is quarantined again.
 *
 * @throws RUN_NOT_FOUND, RUN_NOT_QUARANTINED
 */
export async function releaseQuarantine(
  db: Database,
  options: { tenant: string; runId: string; subject: string; reason: string },
): Promise<{ runId: string; status: string }> {
  const { tenant, runId, subject, reason } = options;
  const [row] = isUuid(runId)
    ? await callFunction<{ outcome: string; run_status: string }>(db, 'release_quarantine', [
        tenant,
        runId,
        subject,
        reason,
      ])
    : [];
  if (row === undefined || row.outcome === 'not_found') {
    throw new CountersignError('RUN_NOT_FOUND', 'No such run; "countersign runs" lists yours.', {
      details: { runId: runId.slice(0, 64) },
    });
  }
  if (row.outcome !== 'released') {
    throw new CountersignError(
      'RUN_NOT_QUARANTINED',
      `This run is ${row.run_status}, not quarantined; nothing was changed.`,
      {
        details: { runId, status: row.run_status },
      },
    );
  }
  return { runId, status: row.run_status };
}
