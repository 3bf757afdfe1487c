import {
  type LedgerAction,
  prepareArguments,
  type ReviewedArguments,
  refusalText,
} from '../actions/index.ts';
import type { PendingCall } from '../agents-sdk/index.ts';
import { CountersignError } from '../errors.ts';
import type { KeyRing } from '../seal/index.ts';
import { acceptsTool, type RegisteredWorkflow } from '../workflows/index.ts';

/** An opened state, and the ledger's rows of the same segment by call id. */
type Reviewed = {
  tenant: string;
  segment: number;
  pending: readonly PendingCall[];
  actions: ReadonlyMap<string, LedgerAction>;
  registered: RegisteredWorkflow;
};

/**
 * Checks, before the SDK runs a byte of it, that the opened state asks for exactly the calls that were reviewed:
 * every pending call has its ledger row at this checkpoint, with the same tool and arguments under today's code, and
 * no reviewed call is missing.
 *
 * @returns the prepared arguments by call id: the ledger is asked with them.
 * @throws TOOL_NOT_GUARDED (park) when today's code no longer guards the tool in that version.
 * @throws CALL_NOT_IN_LEDGER, DIGEST_MISMATCH (quarantine) when the state is not the one that was reviewed.
 */
export function assertReviewed(state: Reviewed): Map<string, ReviewedArguments> {
  const seen = new Map<string, ReviewedArguments>();
  for (const call of state.pending) {
    const action = state.actions.get(call.callId);
    if (action === undefined || seen.has(call.callId)) {
      throw new CountersignError(
        'CALL_NOT_IN_LEDGER',
        'The checkpoint asks for a call that the ledger does not know.',
        {
          details: { tool: call.tool },
        },
      );
    }
    const definition = state.registered.actions.get(call.tool);
    if (
      action.tool !== call.tool ||
      (action.approval !== null && action.approval.checkpoint !== state.segment)
    ) {
      throw mismatch(action);
    }
    if (definition === undefined || !acceptsTool(state.registered, action.tool, action.toolVersion)) {
      throw new CountersignError(
        'TOOL_NOT_GUARDED',
        `This worker does not guard ${call.tool} in version ${action.toolVersion}; run one that does.`,
        {
          details: { tool: call.tool, version: action.toolVersion },
        },
      );
    }
    const prepared = prepareArguments(definition, state.tenant, call.argumentsText);
    seen.set(call.callId, { text: call.argumentsText, prepared });
    if (
      prepared.proposedDigest !== action.proposedDigest ||
      (prepared.ok ? prepared.effectiveDigest : null) !== action.effectiveDigest
    ) {
      throw mismatch(action);
    }
  }
  for (const action of state.actions.values()) {
    if (action.approval?.checkpoint === state.segment && !seen.has(action.callId)) {
      throw mismatch(action);
    }
  }
  return seen;
}

function mismatch(action: LedgerAction): CountersignError {
  return new CountersignError(
    'DIGEST_MISMATCH',
    'The checkpoint is not the one that was reviewed; the run is quarantined.',
    {
      details: { action: action.id },
    },
  );
}

/**
 * Tells the SDK what was decided, call by call. An action that may have been sent is always approved here: the ledger
 * then answers with the receipt, or holds. Only what was certainly never sent is rejected.
 *
 * @returns false when a decision is still missing; then nothing may run.
 */
export function applyDecisions(
  keys: KeyRing,
  tenant: string,
  pending: readonly PendingCall[],
  actions: ReadonlyMap<string, LedgerAction>,
): boolean {
  for (const call of pending) {
    const action = actions.get(call.callId);
    if (action === undefined) {
      return false;
    }
    const approval = action.approval;
    const neverSent = action.attempt === 0 && action.state === 'not_executed';
    if (approval === null && !neverSent) {
      return false;
    }
    if (approval?.state === 'pending') {
      return false;
    }
    if (neverSent) {
      call.reject(wordsFor(keys, tenant, action));
    } else {
      call.approve();
    }
  }
  return true;
}

function wordsFor(keys: KeyRing, tenant: string, action: LedgerAction): string {
  const { approval } = action;
  if (approval?.state === 'rejected' && approval.sealedWords !== null) {
    return keys.openText('review', approval.sealedWords, {
      tenant,
      table: 'approvals',
      column: 'sealed_words',
      row: approval.id,
    });
  }
  return refusalText(action.reason);
}
