import { CountersignError } from '../errors.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import { assertSubject } from '../subject.ts';
import { isUuid } from '../uuid.ts';
import { actionNotFound, actionNotOpen } from './resolve.ts';

type Row = { outcome: string; run_id: string; run_status: string; state: string; recovery: string };

/**
 * Has the provider asked again about an action whose outcome is unknown: now, and with a fresh budget of look-ups. For
 * the person who has mended what kept it from answering. Recorded with their name; asking twice is harmless.
 *
 * @throws ACTION_NOT_FOUND (also for another tenant's); ACTION_NOT_OPEN; ACTION_HAS_NO_LOOKUP; SUBJECT_MISSING
 */
export async function askAction(
  db: Database,
  asked: { tenant: string; actionId: string; subject: string },
): Promise<{ runId: string; runStatus: string }> {
  const { tenant, actionId, subject } = asked;
  assertSubject(subject, 'Asking again');
  const [row] = isUuid(actionId)
    ? await callFunction<Row>(db, 'ask_action', [tenant, actionId, subject])
    : [];
  switch (row?.outcome) {
    case 'asking':
      return { runId: row.run_id, runStatus: row.run_status };
    case 'conflict':
      throw actionNotOpen(actionId, row.state);
    case 'no_lookup':
      throw new CountersignError(
        'ACTION_HAS_NO_LOOKUP',
        `Nobody is asked about a tool with ${row.recovery} recovery; look at the provider and record the outcome with "countersign actions resolve".`,
        { details: { actionId, recovery: row.recovery } },
      );
    default:
      throw actionNotFound(actionId);
  }
}
