import { type FunctionTool, tool } from '@openai/agents';
import type { z } from 'zod';
import { assertGoing, currentSegment, stopSegment } from './scope.ts';

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
    needsApproval: async (_context, _args, callId) =>
      currentSegment(`Tool ${spec.name}`).port.isGated(callId ?? ''),
    execute: () => 'unreachable: invoke is replaced below',
  }) as unknown as FunctionTool<unknown, z.ZodObject, string>;

  made.invoke = async (_context, argumentsText, details) => {
    const scope = currentSegment(`Tool ${spec.name}`);
    assertGoing(scope);
    try {
      return await scope.port.perform({
        callId: details?.toolCall?.callId ?? '',
        tool: spec.name,
        argumentsText,
        path: scope.path,
        aborted: details?.signal?.aborted ?? false,
      });
    } catch (error) {
      return stopSegment(scope, error);
    }
  };
  return made;
}
