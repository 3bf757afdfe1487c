import type { LedgerAction } from '../actions/index.ts';
import type { UsageNumbers } from '../agents-sdk/index.ts';
import type { StoredCall } from '../journal/index.ts';
import { callStep, type Database } from '../postgres/index.ts';
import type { StoredSession } from '../sessions/index.ts';
import type { Capabilities } from '../workflows/index.ts';

/** A run as its new owner holds it: everything a segment needs, from one round trip. */
export type ClaimedRun = {
  tenant: string;
  runId: string;
  workflow: string;
  version: string;
  segment: number;
  epoch: number;
  attempt: number;
  usage: Partial<UsageNumbers>;
  sealed: Buffer;
  actions: LedgerAction[];
  calls: StoredCall[];
  /** Sealed results of plain tools by call id, base64. */
  toolResults: Record<string, string>;
  session: StoredSession | null;
};

export type Claim =
  | { outcome: 'claimed'; run: ClaimedRun }
  /** `waitMs` 0: the hold has run out, and was not to be taken over. */
  | { outcome: 'held'; waitMs: number }
  | { outcome: 'stale' | 'cannot_carry' | 'dead_lettered' | 'unknown' };

type ClaimRow = LoadedRow &
  ({ outcome: 'held'; wait_ms: number } | { outcome: Exclude<Claim['outcome'], 'held'>; wait_ms: null });

export type LoadedRow = {
  run: {
    workflow: string;
    version: string;
    segment: number;
    epoch: number;
    attempt: number;
    usage: Partial<UsageNumbers>;
  } | null;
  sealed: Buffer | null;
  actions: ActionRow[] | null;
  calls: StoredCall[] | null;
  tool_results: Record<string, string> | null;
  session: StoredSession | null;
};

type ActionRow = {
  id: string;
  call_id: string;
  tool: string;
  tool_version: string;
  gated: boolean;
  recovery: LedgerAction['recovery'];
  state: string;
  reason: string | null;
  attempt: number;
  proposed_digest: string;
  effective_digest: string | null;
  sealed_arguments: string | null;
  approval_id: string | null;
  approval_state: string | null;
  checkpoint: number | null;
  sealed_words: string | null;
};

/** See `claim_runs`: compares the wake, the hold and the worker's capabilities on the locked row. */
export async function claimRun(
  db: Database,
  ask: {
    tenant: string;
    runId: string;
    wake: number;
    workerId: string;
    ttlMs: number;
    maxAttempts: number;
    /** Whether a run whose holder's time has run out may be taken from it. */
    takeOver: boolean;
    capabilities: Capabilities;
  },
): Promise<Claim> {
  const row = (await callStep(db, 'claim_runs', {
    tenant: ask.tenant,
    run: ask.runId,
    wake: ask.wake,
    worker: ask.workerId,
    ttl_ms: ask.ttlMs,
    max_attempts: ask.maxAttempts,
    take_over: ask.takeOver,
    workflows: ask.capabilities.workflows,
    state_schemas: ask.capabilities.stateSchemas,
    tools: ask.capabilities.tools,
  })) as ClaimRow;
  if (row.outcome === 'held') {
    return { outcome: 'held', waitMs: row.wait_ms };
  }
  if (row.outcome !== 'claimed') {
    return { outcome: row.outcome };
  }
  return { outcome: 'claimed', run: readRun(ask, row) };
}

/** Reads what `load_run` gives, as the claim returns it and as the check before a deploy looks at it. */
export function readRun(id: { tenant: string; runId: string }, row: LoadedRow): ClaimedRun {
  if (row.run === null || row.sealed === null) {
    throw new Error('a run has no checkpoint');
  }
  return {
    tenant: id.tenant,
    runId: id.runId,
    ...row.run,
    sealed: row.sealed,
    actions: (row.actions ?? []).map(readAction),
    calls: row.calls ?? [],
    toolResults: row.tool_results ?? {},
    session: row.session,
  };
}

function readAction(row: ActionRow): LedgerAction {
  return {
    id: row.id,
    callId: row.call_id,
    tool: row.tool,
    toolVersion: row.tool_version,
    gated: row.gated,
    recovery: row.recovery,
    state: row.state,
    reason: row.reason,
    attempt: row.attempt,
    proposedDigest: row.proposed_digest,
    effectiveDigest: row.effective_digest,
    sealedArguments: fromBase64(row.sealed_arguments),
    approval:
      row.approval_id === null
        ? null
        : {
            id: row.approval_id,
            state: row.approval_state ?? '',
            checkpoint: row.checkpoint ?? -1,
            sealedWords: fromBase64(row.sealed_words),
          },
  };
}

function fromBase64(text: string | null): Buffer | null {
  return text === null ? null : Buffer.from(text, 'base64');
}
