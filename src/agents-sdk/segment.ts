import {
  type Agent,
  type AgentInputItem,
  type ModelProvider,
  RunContext,
  Runner,
  type RunState,
  type Session,
} from '@openai/agents';
import { meaningOf } from './failures.ts';
import { journaledProvider } from './model.ts';
import { type PendingCall, pendingCalls } from './open-state.ts';
import { currentSegment, enterSegment, type SegmentPort } from './scope.ts';
import type { UsageNumbers } from './usage.ts';

export type SegmentStart =
  | { kind: 'input'; input: string | unknown[]; context: unknown }
  | { kind: 'state'; state: RunState<unknown, Agent> };

export type SegmentResult = { usage: UsageNumbers } & (
  | { kind: 'paused'; pending: PendingCall[]; stateText: () => string; state: RunState<unknown, Agent> }
  | { kind: 'final'; output: unknown }
);

const runners = new WeakMap<ModelProvider, Runner>();

/** One Runner per provider: it is configuration, not state. */
function runnerFor(provider: ModelProvider): Runner {
  const known =
    runners.get(provider) ??
    new Runner({
      modelProvider: journaledProvider(provider),
      tracingDisabled: true,
      // The answer that names it is stored: thrown, the error would come again at every retry.
      toolNotFoundBehavior: 'return_error_to_model',
    });
  runners.set(provider, known);
  return known;
}

/**
 * Runs the agent until it pauses, ends or is stopped.
 *
 * @param options.signal aborts model calls when the segment has lasted too long; effects under way are not touched.
 * @throws whatever a port door threw (unwrapped from the SDK's ToolCallError); RUN_FAILED for an outcome that a
 *   repetition would only repeat (turn limit, guardrail, misuse of the SDK); MODEL_FAILED for everything else.
 */
export function runSegment(options: {
  agent: Agent;
  provider: ModelProvider;
  start: SegmentStart;
  port: SegmentPort;
  session: Session | null;
  maxTurns: number;
  signal: AbortSignal;
}): Promise<SegmentResult> {
  return enterSegment(options.port, options.agent, async () => {
    const scope = currentSegment('A segment');
    try {
      const runner = runnerFor(options.provider);
      const common = {
        maxTurns: options.maxTurns,
        signal: options.signal,
        ...(options.session === null ? {} : { session: options.session }),
      };
      const result =
        options.start.kind === 'state'
          ? await runner.run(options.agent, options.start.state, common)
          : await runner.run(options.agent, options.start.input as string | AgentInputItem[], {
              ...common,
              context: new RunContext(options.start.context),
            });
      if (scope.shared.stop !== undefined) {
        throw scope.shared.stop;
      }
      const { requests, inputTokens, outputTokens, totalTokens } = result.state.usage;
      const usage = { requests, inputTokens, outputTokens, totalTokens };
      if (result.interruptions.length > 0) {
        const state = result.state as RunState<unknown, Agent>;
        return {
          kind: 'paused',
          usage,
          state,
          pending: pendingCalls(state),
          stateText: () => state.toString(),
        };
      }
      return { kind: 'final', usage, output: result.finalOutput ?? null };
    } catch (error) {
      throw scope.shared.stop ?? meaningOf(error);
    }
  });
}
