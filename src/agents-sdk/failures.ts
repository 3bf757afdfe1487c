import {
  InputGuardrailTripwireTriggered,
  MaxTurnsExceededError,
  OutputGuardrailTripwireTriggered,
  ToolCallError,
  UserError,
} from '@openai/agents';
import { CountersignError } from '../errors.ts';

/**
 * What an error that a run of the SDK ended with means for the segment.
 *
 * @returns RUN_FAILED for an end that a repetition would only repeat (turn limit, guardrail, misuse of the SDK);
 *   MODEL_FAILED for everything else; our own errors as they are.
 */
export function meaningOf(error: unknown): unknown {
  const inner = error instanceof ToolCallError ? error.error : error;
  if (
    inner instanceof MaxTurnsExceededError ||
    inner instanceof InputGuardrailTripwireTriggered ||
    inner instanceof OutputGuardrailTripwireTriggered ||
    inner instanceof UserError
  ) {
    return new CountersignError(
      'RUN_FAILED',
      `The agent run ended with ${inner.name || inner.constructor.name}; a retry would repeat it.`,
      {
        details: { sdkError: inner.constructor.name },
        cause: inner,
      },
    );
  }
  return modelFailed(inner);
}

/** A failure of the world outside: the segment will be run again. */
export function modelFailed(error: unknown): unknown {
  if (error instanceof CountersignError || !(error instanceof Error)) {
    return error;
  }
  return new CountersignError(
    'MODEL_FAILED',
    `A model call or a tool threw ${error.constructor.name}; the segment will be run again.`,
    {
      details: {
        sdkError: error.constructor.name,
        status: 'status' in error && typeof error.status === 'number' ? error.status : null,
      },
      cause: error,
    },
  );
}
