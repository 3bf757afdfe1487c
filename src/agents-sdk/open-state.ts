import { type Agent, RunContext, RunState, type RunToolApprovalItem } from '@openai/agents';
import { CountersignError } from '../errors.ts';

/** A call that the opened state wants decided. */
export type PendingCall = {
  callId: string;
  tool: string;
  argumentsText: string;
  /** Approves just this call. The SDK's sticky decisions are used nowhere. */
  approve(): void;
  /** Rejects just this call; the model is told `message`. */
  reject(message: string): void;
};

export type OpenedState = {
  state: RunState<unknown, Agent>;
  pending: PendingCall[];
};

/**
 * Rebuilds a RunState from text that our own envelope has already authenticated and versioned.
 *
 * The context is handed in anew (`fromStringWithContext`, strategy `merge`): `run(agent, state, { context })` would
 * silently keep the serialised one, and `replace` would lose the approvals (measured, @openai/agents 0.20).
 *
 * @throws DIGEST_MISMATCH when the SDK refuses it: our seal, schema and manifest fitted, so it is not what was written.
 */
export async function openState(agent: Agent, text: string, context: unknown): Promise<OpenedState> {
  try {
    const state = await RunState.fromStringWithContext<unknown, Agent>(agent, text, new RunContext(context), {
      contextStrategy: 'merge',
    });
    return { state, pending: pendingCalls(state) };
  } catch (error) {
    throw new CountersignError(
      'DIGEST_MISMATCH',
      'The SDK refuses the stored state: it was changed, or its agents were, under the same version.',
      { details: { sdkError: error instanceof Error ? error.constructor.name : typeof error }, cause: error },
    );
  }
}

export function pendingCalls(state: RunState<unknown, Agent>): PendingCall[] {
  return state.getInterruptions().map((item: RunToolApprovalItem) => {
    const raw = item.rawItem;
    const isCall = raw.type === 'function_call';
    return {
      callId: isCall ? raw.callId : '',
      tool: isCall ? raw.name : `${raw.type}`,
      argumentsText: isCall ? raw.arguments : '',
      approve: () => state.approve(item),
      reject: (message: string) => state.reject(item, { message }),
    };
  });
}
