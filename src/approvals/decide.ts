import { randomUUID } from 'node:crypto';
import { isWellFormed } from '../digests/index.ts';
import { CountersignError } from '../errors.ts';
import { nudgeRelay } from '../outbox/index.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { assertSubject } from '../subject.ts';
import { isUuid } from '../uuid.ts';

export type Decision = {
  tenant: string;
  approvalId: string;
  verdict: 'approve' | 'reject';
  /** The authenticated person. */
  subject: string;
  /** The fingerprint of what that person was shown. */
  fingerprint: string;
  /** The person's own words; on a rejection the model is told them. At most 4,000 characters. */
  words?: string | undefined;
};

export type Decided = {
  outcome: 'approved' | 'rejected' | 'vote_recorded' | 'repeat';
  state: string;
  decisionId: string | null;
  decidedBy: string | null;
  decidedAt: Date | null;
  runId: string;
  runStatus: string;
};

type Row = {
  outcome:
    | Decided['outcome']
    | 'conflict'
    | 'expired'
    | 'fingerprint_mismatch'
    | 'self_approval'
    | 'not_found';
  state: string | null;
  decision_id: string | null;
  decided_by: string | null;
  decided_at: Date | null;
  run_id: string;
  run_status: string;
};

/**
 * Records one person's word, and with it the approval's transition when it is complete.
 *
 * @throws SUBJECT_MISSING, INPUT_INVALID; APPROVAL_NOT_FOUND (also for another tenant's); APPROVAL_DECIDED with the
 *   winner's outcome; APPROVAL_EXPIRED; APPROVAL_CHANGED when the fingerprint shown is not the one stored;
 *   SELF_APPROVAL under a quorum.
 */
export async function decide(db: Database, keys: KeyRing, decision: Decision): Promise<Decided> {
  assertSubject(decision.subject, 'A decision');
  if (decision.verdict !== 'approve' && decision.verdict !== 'reject') {
    throw new CountersignError('INPUT_INVALID', 'verdict must be "approve" or "reject".', {
      details: { field: 'verdict' },
    });
  }
  const words = decision.words ?? '';
  if (words.length > 4_000 || words.includes('\u0000') || !isWellFormed(words)) {
    throw new CountersignError(
      'INPUT_INVALID',
      'words must be at most 4000 characters, without NUL or lone surrogates.',
      { details: { field: 'words' } },
    );
  }
  const row = await recordWord(db, keys, decision, words);
  if (row?.run_status === 'ready') {
    nudgeRelay(db);
  }
  switch (row?.outcome) {
    case 'approved':
    case 'rejected':
    case 'vote_recorded':
    case 'repeat':
      return {
        outcome: row.outcome,
        state: row.state ?? '',
        decisionId: row.decision_id,
        decidedBy: row.decided_by,
        decidedAt: row.decided_at,
        runId: row.run_id,
        runStatus: row.run_status,
      };
    default:
      throw refusal(row, decision.approvalId);
  }
}

/** Undefined: no such approval. */
async function recordWord(
  db: Database,
  keys: KeyRing,
  decision: Decision,
  words: string,
): Promise<Row | undefined> {
  const { tenant, verdict, subject, fingerprint } = decision;
  // The id is part of what the words are sealed to, and Postgres writes it in lower case.
  const id = decision.approvalId.toLowerCase();
  if (!isUuid(id) || tenant === '') {
    return undefined;
  }
  const sealedWords =
    words === ''
      ? null
      : keys.seal('review', words, { tenant, table: 'approvals', column: 'sealed_words', row: id });
  // What cannot be a fingerprint is not the stored one either; the attempt is recorded like any other.
  const shown = /^[0-9a-f]{64}$/.test(fingerprint) ? fingerprint : '';
  const [row] = await callFunction<Row>(db, 'decide_approval', [
    tenant,
    id,
    verdict,
    subject,
    shown,
    randomUUID(),
    sealedWords,
  ]);
  return row;
}

function refusal(row: Row | undefined, asked: string): CountersignError {
  const approvalId = asked.slice(0, 64);
  const details = { approvalId, state: row?.state ?? null, decidedBy: row?.decided_by ?? null };
  switch (row?.outcome) {
    case 'conflict':
      return new CountersignError(
        'APPROVAL_DECIDED',
        `This approval is already ${row.state ?? 'decided'}${row.decided_by === null ? '' : ` by ${row.decided_by}`}; nothing was changed.`,
        { details },
      );
    case 'expired':
      return new CountersignError(
        'APPROVAL_EXPIRED',
        'The time to decide has passed; nothing will be executed.',
        { details },
      );
    case 'fingerprint_mismatch':
      return new CountersignError(
        'APPROVAL_CHANGED',
        'What you were shown is not what is stored now; load the approval again.',
        { details: { ...details, field: 'fingerprint' } },
      );
    case 'self_approval':
      return new CountersignError(
        'SELF_APPROVAL',
        'This policy needs other people than the one who started the run.',
        { details },
      );
    default:
      return new CountersignError(
        'APPROVAL_NOT_FOUND',
        'No such approval; "countersign approvals" lists yours.',
        { details: { approvalId } },
      );
  }
}

/**
 * Withdraws an approval that no worker has consumed yet.
 *
 * @throws APPROVAL_NOT_FOUND, APPROVAL_DECIDED (it is not approved, or already consumed)
 */
export async function revoke(
  db: Database,
  options: { tenant: string; approvalId: string; subject: string },
): Promise<{ runId: string; runStatus: string }> {
  assertSubject(options.subject, 'A withdrawal');
  const [row] = isUuid(options.approvalId)
    ? await callFunction<{ outcome: string; state: string | null; run_id: string; run_status: string }>(
        db,
        'revoke_approval',
        [options.tenant, options.approvalId, options.subject],
      )
    : [];
  if (row === undefined || row.outcome === 'not_found') {
    throw new CountersignError(
      'APPROVAL_NOT_FOUND',
      'No such approval; "countersign approvals" lists yours.',
      { details: { approvalId: options.approvalId.slice(0, 64) } },
    );
  }
  if (row.outcome !== 'revoked') {
    throw new CountersignError(
      'APPROVAL_DECIDED',
      `This approval is ${row.state ?? 'decided'} and can no longer be revoked.`,
      {
        details: { approvalId: options.approvalId, state: row.state },
      },
    );
  }
  if (row.run_status === 'ready') {
    nudgeRelay(db);
  }
  return { runId: row.run_id, runStatus: row.run_status };
}
