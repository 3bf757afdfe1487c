import { type FunctionTool, tool } from '@openai/agents';
import type { z } from 'zod';
import { CountersignError } from '../errors.ts';
import { assertGoing, currentSegment, enterUserCode, stopSegment } from './scope.ts';

/**
 * Makes the SDK tool of an `action()`: its schema is the SDK's own reading of the zod object, its approval rule asks
 * the ledger, and its body hands over to the segment's port. The SDK's argument parsing, timeouts and error texts
 * take no part: they would tell the model "try again" about an effect that may have happened.
 */
export function guardedTool(spec: {
  name: string;
  description: string;
  parameters: z.ZodObject;
}): FunctionTool<unknown, z.ZodObject, string> {
  const made = tool({
    name: spec.name,
    description: spec.description,
    parameters: spec.parameters,
    strict: true,
    needsApproval: async (_context, _args, callId) => {
      const scope = currentSegment(`Tool ${spec.name}`);
      return scope.whose === 'ours' && scope.port.isGated(callId ?? '');
    },
    execute: () => 'unreachable: invoke is replaced below',
  }) as unknown as FunctionTool<unknown, z.ZodObject, string>;

  made.invoke = async (_context, argumentsText, details) => {
    const scope = currentSegment(`Tool ${spec.name}`);
    assertGoing(scope);
    if (scope.whose !== 'ours') {
      // No journal holds the response that asks for it, so it has no identity to be carried out under.
      return stopSegment(
        scope,
        new CountersignError(
          'TOOL_NOT_GUARDED',
          `Action "${spec.name}" was called by a run of the workflow's own code; give its agent to the workflow's agent, with asTool() or as a handoff.`,
          { details: { tool: spec.name } },
        ),
      );
    }
    const call = {
      callId: details?.toolCall?.callId ?? '',
      tool: spec.name,
      argumentsText,
      path: scope.path,
      aborted: details?.signal?.aborted ?? false,
    };
    scope.shared.performed.add(scope.path);
    try {
      return await enterUserCode(scope, () => scope.port.perform(call));
    } catch (error) {
      return stopSegment(scope, error);
    }
  };
  return made;
}
