import { callStep, type Database, type Queryable } from '../postgres/index.ts';
import type { RecoveryKind } from './recovery.ts';

/** A ledger row as a worker holds it. Arguments and result stay sealed until they are needed. */
export type LedgerAction = {
  id: string;
  callId: string;
  tool: string;
  toolVersion: string;
  gated: boolean;
  recovery: RecoveryKind;
  state: string;
  reason: string | null;
  attempt: number;
  proposedDigest: string;
  effectiveDigest: string | null;
  sealedArguments: Buffer | null;
  approval: { id: string; state: string; checkpoint: number; sealedWords: Buffer | null } | null;
};

export type Intent = {
  outcome: 'dispatched' | 'receipt' | 'refused' | 'held' | 'decide_again' | 'digest_mismatch' | 'fenced';
  state: string | null;
  reason: string | null;
  attempt: number | null;
  sealed_result: Buffer | null;
};

/** Asks for the right to send, now. See `intend_actions` for every outcome. */
export async function intendAction(
  db: Database | Queryable,
  ask: {
    tenant: string;
    runId: string;
    epoch: number;
    actionId: string;
    tool: string;
    proposedDigest: string;
    effectiveDigest: string;
  },
): Promise<Intent> {
  return (await callStep(db, 'intend_actions', {
    tenant: ask.tenant,
    run: ask.runId,
    epoch: ask.epoch,
    action: ask.actionId,
    tool: ask.tool,
    proposed_digest: ask.proposedDigest,
    effective_digest: ask.effectiveDigest,
  })) as Intent;
}

export type SettleOutcome =
  | 'succeeded'
  | 'failed'
  | 'never_sent'
  | 'unknown'
  | 'absent'
  | 'different'
  | 'cannot_say'
  | 'abandoned';

export type Settlement = {
  outcome: 'settled' | 'kept' | 'contradiction' | 'not_found';
  run_status: string | null;
};

/** Records what is known about one attempt. See `settle_actions`. Never fenced by the epoch. */
export async function settleAction(
  db: Database | Queryable,
  known: {
    tenant: string;
    runId: string;
    actionId: string;
    attempt: number;
    outcome: SettleOutcome;
    source: 'worker' | 'transaction' | 'lookup' | 'person';
    receiptId: string;
    sealedReceipt: Buffer | null;
    sealedResult: Buffer | null;
    reason?: string | null;
    /** The caller's own epoch: an unproven outcome then suspends its run in the same transaction. */
    epoch?: number | null;
    backoffMs?: number;
    /** Database time before the provider was asked; an absence counts only from after `absent_after`. */
    askedAt?: Date | null;
  },
): Promise<Settlement> {
  return (await callStep(db, 'settle_actions', {
    tenant: known.tenant,
    run: known.runId,
    action: known.actionId,
    attempt: known.attempt,
    outcome: known.outcome,
    source: known.source,
    receipt: known.receiptId,
    sealed_receipt: known.sealedReceipt,
    sealed_result: known.sealedResult,
    reason: known.reason ?? null,
    epoch: known.epoch ?? null,
    backoff_ms: known.backoffMs ?? 0,
    asked_at: known.askedAt ?? null,
  })) as Settlement;
}

/**
 * The fixed text a model is told when an action did not run. The same text whether the refusal is known at resume or
 * found at intend, so that a replayed segment asks the model the same thing.
 */
export function refusalText(reason: string | null): string {
  switch (reason) {
    case 'expired':
      return 'Not executed: the approval expired before the action could run.';
    case 'revoked':
      return 'Not executed: the approval was withdrawn.';
    case 'superseded':
      return 'Not executed: a newer request replaced this one.';
    case 'cancelled':
      return 'Not executed: the run was cancelled.';
    case 'rejected':
      return 'Not executed: a reviewer rejected this action.';
    case 'ARGUMENTS_REFUSED':
    case 'ARGUMENTS_NOT_STABLE':
      return `Not executed: the arguments were refused (${reason}). Check them against the tool's schema and call it again.`;
    default:
      return 'Not executed: the approval is no longer valid.';
  }
}
