import type { KeyRing } from '../seal/index.ts';
import { prepareArguments } from './arguments.ts';
import type { ActionDefinition } from './define.ts';
import type { LedgerAction } from './ledger.ts';

/** A new ledger row: as the journal statement stores it, and as this worker goes on holding it. */
export type MintedAction = { row: Record<string, unknown>; action: LedgerAction };

/**
 * Makes the ledger row of one consequential call. `id` was minted for it and is its operation key for ever; nothing
 * of it is derived from ids that the model's provider chose.
 */
export function mintAction(options: {
  id: string;
  callId: string;
  tenant: string;
  definition: ActionDefinition;
  argumentsText: string;
  keys: KeyRing;
}): MintedAction {
  const { id, callId, tenant, definition, keys } = options;
  const prepared = prepareArguments(definition, tenant, options.argumentsText);
  const gated = prepared.ok && definition.approvalFor(prepared.effective) !== null;
  const sealedArguments = prepared.ok
    ? keys.sealJson('review', prepared.effective, {
        tenant,
        table: 'actions',
        column: 'sealed_arguments',
        row: id,
      })
    : null;
  const refusedFor = prepared.ok ? null : prepared.reason;
  const { recovery } = definition;
  return {
    row: {
      id,
      call_id: callId,
      tool: definition.name,
      tool_version: definition.version,
      gated,
      recovery: recovery.kind,
      refused: refusedFor,
      attempt_budget: definition.attemptBudget,
      proposed_digest: prepared.proposedDigest,
      effective_digest: prepared.ok ? prepared.effectiveDigest : null,
      operation_digest: prepared.ok ? prepared.operationDigest : null,
      sealed_arguments: sealedArguments?.toString('base64') ?? null,
      send_within_ms: definition.sendWithinMs,
      call_timeout_ms: definition.callTimeoutMs,
      settles_within_ms: recovery.settlesWithinMs,
      key_lifetime_ms: recovery.keyLifetimeMs,
      reissue: recovery.reissue,
    },
    action: {
      id,
      callId,
      tool: definition.name,
      toolVersion: definition.version,
      gated,
      recovery: recovery.kind,
      state: refusedFor === null ? 'prepared' : 'not_executed',
      reason: refusedFor,
      attempt: 0,
      proposedDigest: prepared.proposedDigest,
      effectiveDigest: prepared.ok ? prepared.effectiveDigest : null,
      sealedArguments,
      approval: null,
    },
  };
}
