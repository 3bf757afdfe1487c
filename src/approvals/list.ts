import { digestOf, type JsonValue } from '../digests/index.ts';
import { CountersignError } from '../errors.ts';
import { type Database, readAsTenant } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { isUuid } from '../uuid.ts';

export type ApprovalSummary = {
  id: string;
  runId: string;
  actionId: string;
  tool: string;
  state: string;
  policy: string;
  decideBefore: Date;
  decidedBy: string | null;
};

/** What a reviewer is shown, and the fingerprint that a decision on it must carry. */
export type ApprovalCard = ApprovalSummary & {
  review: {
    tool: string;
    toolVersion: string;
    target: string;
    arguments: unknown;
    review: { summary: string; undo?: string };
    recovery: string;
  };
  /** SHA-256 of the effective arguments (RFC 8785): what will run. */
  digest: string;
  fingerprint: string;
  quorum: number;
  votes: number;
  /** The same operation, asked for elsewhere, that has happened or may have: approving would do it once more. */
  identical: { actionId: string; runId: string; state: string; sentAt: string } | null;
};

const LISTED = `
  select p.id, p.run_id as "runId", p.action_id as "actionId", a.tool, p.state, p.policy, p.decide_before as "decideBefore", p.decided_by as "decidedBy"
  from countersign.approvals p join countersign.actions a on a.tenant = p.tenant and a.id = p.action_id`;
/** parameters: limit, state or null. Oldest first. */
const LIST = `${LISTED} where $2::text is null or p.state = $2 order by p.created_at, p.id limit $1`;
/**
 * parameter: limit. They leave the list the moment they lapse, by the database's clock, whether or not a sweep has made
 * that a row. Oldest first.
 */
const PENDING = `${LISTED} where p.state = 'pending' and p.lapses_at > clock_timestamp()
  order by p.created_at, p.id limit $1`;

/** parameter: approval id. Zero rows: no such approval of this tenant. */
const SHOW = `
  select p.id, p.run_id as "runId", p.action_id as "actionId", a.tool, p.state, p.policy, p.decide_before as "decideBefore",
    p.decided_by as "decidedBy", p.sealed_review, a.effective_digest as digest, p.fingerprint, p.quorum,
    (select count(*)::integer from countersign.votes v where v.tenant = p.tenant and v.approval_id = p.id and v.verdict = 'approve') as votes,
    (select jsonb_build_object('actionId', o.id, 'runId', o.run_id, 'state', o.state, 'sentAt', o.dispatched_at)
      from countersign.actions o where o.tenant = a.tenant and o.operation_digest = a.operation_digest and o.id <> a.id
        and o.state in ('dispatched', 'outcome_unknown', 'succeeded') order by o.dispatched_at desc limit 1) as identical
  from countersign.approvals p join countersign.actions a on a.tenant = p.tenant and a.id = p.action_id
  where p.id = $1`;

/** @param options.state default `pending`; null lists all. @param options.limit at most 500; default 50. */
export async function listApprovals(
  db: Database,
  options: { tenant: string; state?: string | null; limit?: number },
): Promise<ApprovalSummary[]> {
  const state = options.state === undefined ? 'pending' : options.state;
  return readAsTenant(db, options.tenant, async (tx) => {
    const limit = Math.min(options.limit ?? 50, 500);
    const { rows } =
      state === 'pending' ? await tx.query(PENDING, [limit]) : await tx.query(LIST, [limit, state]);
    return rows as ApprovalSummary[];
  });
}

/**
 * @throws APPROVAL_NOT_FOUND, KEY_MISSING, SEAL_BROKEN; DIGEST_MISMATCH when the arguments on the stored card are not those
 *   that would run.
 */
export async function showApproval(
  db: Database,
  keys: KeyRing,
  options: { tenant: string; approvalId: string },
): Promise<ApprovalCard> {
  const { tenant, approvalId } = options;
  const rows = isUuid(approvalId)
    ? await readAsTenant(db, tenant, async (tx) => (await tx.query(SHOW, [approvalId])).rows)
    : [];
  const row = rows[0] as (Omit<ApprovalCard, 'review'> & { sealed_review: Buffer }) | undefined;
  if (row === undefined) {
    throw new CountersignError(
      'APPROVAL_NOT_FOUND',
      'No such approval; "countersign approvals" lists yours.',
      { details: { approvalId: approvalId.slice(0, 64) } },
    );
  }
  const { sealed_review: sealed, ...card } = row;
  const review = keys.openJson('review', sealed, {
    tenant,
    table: 'approvals',
    column: 'sealed_review',
    row: card.id,
  });
  const shown = review as ApprovalCard['review'];
  if (digestOf(shown.arguments as JsonValue) !== card.digest) {
    throw new CountersignError(
      'DIGEST_MISMATCH',
      'The arguments on the stored card are not those that would run; do not decide on it.',
      { details: { approvalId: card.id, action: card.actionId } },
    );
  }
  return { ...card, review: shown };
}
