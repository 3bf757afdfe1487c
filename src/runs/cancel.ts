import { CountersignError } from '../errors.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import { isUuid } from '../uuid.ts';

export type Cancelled = { outcome: 'cancelled' | 'cancelling' | 'ended'; status: string; inFlight: string[] };

/**
 * Asks a run to stop. Nothing new is sent from now on; it becomes `cancelled` when the last open attempt is settled,
 * and the answer lists what is still in flight.
 *
 * @throws RUN_NOT_FOUND
 */
export async function cancelRun(
  db: Database,
  options: { tenant: string; runId: string; subject: string },
): Promise<Cancelled> {
  const [row] = isUuid(options.runId)
    ? await callFunction<{
        outcome: Cancelled['outcome'] | 'not_found';
        status: string;
        in_flight: string[] | null;
      }>(db, 'cancel_run', [options.tenant, options.runId, options.subject])
    : [];
  if (row === undefined || row.outcome === 'not_found') {
    throw new CountersignError('RUN_NOT_FOUND', 'No such run; "countersign runs" lists yours.', {
      details: { runId: options.runId.slice(0, 64) },
    });
  }
  return { outcome: row.outcome, status: row.status, inFlight: row.in_flight ?? [] };
}
