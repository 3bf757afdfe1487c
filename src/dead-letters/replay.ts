import { CountersignError } from '../errors.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import { assertSubject } from '../subject.ts';
import { deadLetterNotFound, showDeadLetter } from './list.ts';

export type Replayed = {
  id: string;
  runId: string;
  outcome: 'replayed' | 'already_replayed' | 'already_done';
  runStatus: string | null;
};

/**
 * Puts one dead letter back. Harmless when repeated, and when two operators do it at once: one of them replays, the
 * other is told so.
 *
 * @throws DEAD_LETTER_NOT_FOUND; SESSION_BUSY; SUBJECT_MISSING, INPUT_INVALID (who and why are part of the record)
 */
export async function replay(
  db: Database,
  options: { tenant: string; id: string; subject: string; reason: string },
): Promise<Replayed> {
  const { tenant, id, subject, reason } = options;
  assertSubject(subject, 'A replay');
  if (reason.length > 1_000 || reason.includes('\u0000')) {
    throw new CountersignError(
      'INPUT_INVALID',
      'The reason of a replay is at most 1000 characters, without NUL.',
      { details: { field: 'reason' } },
    );
  }
  const letter = await showDeadLetter(db, tenant, id);
  const [row] =
    letter.kind === 'run'
      ? await callFunction<{
          outcome: Replayed['outcome'] | 'not_found' | 'session_busy';
          run_id: string;
          run_status: string;
        }>(db, 'replay_dead_letter', [tenant, id, subject, reason])
      : await callFunction<{
          outcome: Replayed['outcome'] | 'not_found' | 'session_busy';
          run_id: string;
          run_status?: string;
        }>(db, 'replay_outbox_row', [tenant, id, subject]);
  if (row === undefined || row.outcome === 'not_found') {
    throw deadLetterNotFound(id);
  }
  if (row.outcome === 'session_busy') {
    throw new CountersignError(
      'SESSION_BUSY',
      'Another run is active on this run’s session; wait until it has ended.',
      {
        details: { field: 'session', runId: row.run_id },
      },
    );
  }
  return { id, runId: row.run_id, outcome: row.outcome, runStatus: row.run_status ?? null };
}
