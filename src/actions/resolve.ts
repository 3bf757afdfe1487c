import { randomUUID } from 'node:crypto';
import { CountersignError } from '../errors.ts';
import { callFunction, type Database, readAsTenant } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { assertSubject } from '../subject.ts';
import { isUuid } from '../uuid.ts';

export type OpenAction = {
  id: string;
  runId: string;
  tool: string;
  state: string;
  reason: string | null;
  attempt: number;
  recovery: string;
  dispatchedAt: Date;
  /** When it is asked about next; null: only a person can say. */
  dueAt: Date | null;
};

/** parameters: limit, only unknown. Oldest dispatch first. */
const OPEN = `
  select id, run_id as "runId", tool, state, reason, attempt, recovery, dispatched_at as "dispatchedAt", reconcile_after as "dueAt"
  from countersign.actions where state = 'outcome_unknown' or (state = 'dispatched' and not $2) order by dispatched_at, id limit $1`;

/** Actions that are out in the world without proof. @param options.limit at most 500; default 50. */
export async function listOpenActions(
  db: Database,
  options: { tenant: string; onlyUnknown?: boolean; limit?: number },
): Promise<OpenAction[]> {
  return readAsTenant(db, options.tenant, async (tx) => {
    const { rows } = await tx.query(OPEN, [Math.min(options.limit ?? 50, 500), options.onlyUnknown ?? false]);
    return rows as OpenAction[];
  });
}

export type Judgement = {
  tenant: string;
  actionId: string;
  /** The attempt they looked for: a word on one attempt must not close a later one. Default 1. */
  attempt?: number;
  /** What the person found at the provider. `abandoned`: it will never be known. */
  verdict: 'succeeded' | 'not_executed' | 'abandoned';
  subject: string;
  /** What they saw: a receipt number, a screenshot's name. Kept sealed; on `succeeded` the model is told it. */
  evidence: string;
};

type Row = {
  outcome: string;
  run_id: string;
  run_status: string;
  state: string;
  attempt: number;
  absent_after: Date | null;
};

/**
 * Records a named person's word on an action whose outcome is unknown.
 *
 * @throws ACTION_NOT_FOUND (also for another tenant's); ACTION_NOT_OPEN; ACTION_SENT_AGAIN when the attempt they looked
 *   for is not the latest; ACTION_UNDER_WAY when `not_executed` is said while the request may still arrive;
 *   SUBJECT_MISSING; INPUT_INVALID
 */
export async function resolveAction(
  db: Database,
  keys: KeyRing,
  judgement: Judgement,
): Promise<{ runId: string; runStatus: string; state: string }> {
  const { tenant, actionId, attempt = 1, verdict, subject, evidence } = judgement;
  assertSubject(subject, 'A judgement');
  if (evidence.length === 0 || evidence.length > 4_000 || evidence.includes('\u0000')) {
    throw new CountersignError(
      'INPUT_INVALID',
      'A judgement needs evidence: 1 to 4000 characters, without NUL.',
      { details: { field: 'evidence' } },
    );
  }
  const receiptId = randomUUID();
  const told =
    verdict === 'succeeded'
      ? evidence
      : verdict === 'abandoned'
        ? 'The outcome of this action is unknown and was closed by a person. Do not repeat it.'
        : null;
  const [row] = isUuid(actionId)
    ? await callFunction<Row>(db, 'resolve_action', [
        tenant,
        actionId,
        attempt,
        verdict === 'not_executed' ? 'absent' : verdict,
        subject,
        receiptId,
        keys.seal('review', evidence, { tenant, table: 'receipts', column: 'sealed', row: receiptId }),
        told === null
          ? null
          : keys.seal('review', told, { tenant, table: 'actions', column: 'sealed_result', row: actionId }),
      ])
    : [];
  if (row?.outcome !== 'settled') {
    throw refusal(row, judgement);
  }
  return { runId: row.run_id, runStatus: row.run_status, state: row.state };
}

function refusal(row: Row | undefined, { actionId }: Judgement): CountersignError {
  if (row === undefined || row.outcome === 'not_found') {
    return actionNotFound(actionId);
  }
  switch (row.outcome) {
    case 'another_attempt':
      return new CountersignError(
        'ACTION_SENT_AGAIN',
        `This action's latest attempt is ${row.attempt}; look for that one too and name it (attempt, --attempt ${row.attempt}).`,
        { details: { actionId, attempt: row.attempt } },
      );
    case 'too_early':
      return new CountersignError(
        'ACTION_UNDER_WAY',
        `The request may still arrive until ${row.absent_after?.toISOString()}; look again after that.`,
        { details: { actionId, absentAfter: row.absent_after?.toISOString() ?? null } },
      );
    default:
      return actionNotOpen(actionId, row.state);
  }
}

export function actionNotFound(actionId: string): CountersignError {
  return new CountersignError(
    'ACTION_NOT_FOUND',
    'No such action; "countersign actions list --unknown" lists yours.',
    { details: { actionId: actionId.slice(0, 64) } },
  );
}

export function actionNotOpen(actionId: string, state: string): CountersignError {
  return new CountersignError(
    'ACTION_NOT_OPEN',
    `This action is ${state}: there is no unknown outcome to judge.`,
    { details: { actionId, state } },
  );
}
