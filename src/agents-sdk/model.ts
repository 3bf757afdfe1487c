import { createHash } from 'node:crypto';
import {
  type Model,
  type ModelProvider,
  type ModelRequest,
  type ModelResponse,
  OpenAIProvider,
  type StreamEvent,
  Usage,
} from '@openai/agents';
import { CountersignError } from '../errors.ts';
import { gate } from '../failpoints.ts';
import { modelFailed } from './failures.ts';
import { assertGoing, currentSegment, stopSegment } from './scope.ts';
import type { UsageNumbers } from './usage.ts';

/**
 * RunState schemas this build reads and writes, as announced by workers and compared by the claim.
 * 1.22 is what @openai/agents 0.20 writes (its runState.ts, CURRENT_SCHEMA_VERSION).
 */
export const STATE_SCHEMA = 'openai-agents/1.22';

/** A model response as JSON: what the journal stores and replays. */
export type ModelAnswer = {
  usage: UsageNumbers;
  output: Record<string, unknown>[];
  responseId?: string | undefined;
};

/**
 * OpenAI by OPENAI_API_KEY; with OPENAI_BASE_URL any compatible endpoint, by the chat completions API that such
 * endpoints share. Connects at the first call.
 */
export function defaultModelProvider(): ModelProvider {
  return new OpenAIProvider({ useResponses: process.env.OPENAI_BASE_URL === undefined });
}

/** Wraps a model so that each of its calls passes the segment's journal. Runs of user code's own pass by it. */
export function journaledModel(inner: Model): Model {
  const model: Model = {
    getResponse: (request) => respond(inner, request),
    async *getStreamedResponse(request): AsyncIterable<StreamEvent> {
      if (currentSegment('A model of a workflow').whose !== 'ours') {
        yield* inner.getStreamedResponse(request);
        return;
      }
      // A streamed nested run gets its answer in one piece: it must be stored before anything acts on it.
      const response = await respond(inner, request);
      yield { type: 'response_started' };
      yield {
        type: 'response_done',
        response: { id: response.responseId ?? '', usage: response.usage, output: response.output },
      } as StreamEvent;
    },
  };
  return inner.getRetryAdvice === undefined
    ? model
    : { ...model, getRetryAdvice: (args) => inner.getRetryAdvice?.(args) };
}

/** Wraps a provider so that every model it hands out is journaled; one wrapper per model. */
export function journaledProvider(inner: ModelProvider): ModelProvider {
  const wrapped = new WeakMap<Model, Model>();
  return {
    async getModel(name) {
      const model = await inner.getModel(name);
      const known = wrapped.get(model) ?? journaledModel(model);
      wrapped.set(model, known);
      return known;
    },
  };
}

/** Equal to nothing that can be thrown. */
const NONE = Symbol('no failure');

async function respond(inner: Model, request: ModelRequest): Promise<ModelResponse> {
  const scope = currentSegment('A model of a workflow');
  assertGoing(scope);
  if (scope.whose !== 'ours') {
    return inner.getResponse(request);
  }
  const { path, shared } = scope;
  // Taken before anything is awaited, and taken again by the next try if this one fails or is given up.
  const n = shared.counters.get(path) ?? 0;
  const mine = Symbol('model call');
  shared.asking.set(path, mine);
  const isMine = () => shared.asking.get(path) === mine;
  // Given up by its agent's time limit: inside an agent used as a tool that would be told to the caller's model.
  const givenUp = () => {
    if (path !== '' && isMine()) {
      shared.stop ??= modelFailed(request.signal?.reason);
    }
  };
  request.signal?.addEventListener('abort', givenUp, { once: true });
  let answer: ModelAnswer;
  let modelFailure: unknown = NONE;
  try {
    assertJournalable(request);
    answer = await scope.port.respond({
      path,
      n,
      requestDigest: requestDigest(request),
      ask: async () => {
        try {
          const response = await gate('model', 'ask', () => inner.getResponse(request));
          if (request.signal?.aborted === true || !isMine()) {
            throw tooLate(path, n);
          }
          return toAnswer(response);
        } catch (error) {
          modelFailure = error;
          throw error;
        }
      },
    });
  } catch (error) {
    // What the journal refuses is final, whatever retry policy the agent has. A model's own failure ends the segment too
    // where an agent used as a tool would turn it into "an error occurred, try again" for its caller's model.
    if (isMine() && (path !== '' || error !== modelFailure)) {
      stopSegment(scope, error === modelFailure ? modelFailed(error) : error);
    }
    throw error;
  } finally {
    request.signal?.removeEventListener('abort', givenUp);
  }
  if (request.signal?.aborted !== true) {
    shared.counters.set(path, n + 1);
  }
  return {
    usage: new Usage(answer.usage),
    output: answer.output as ModelResponse['output'],
    ...(answer.responseId === undefined ? {} : { responseId: answer.responseId }),
  };
}

/** The SDK has given this call up, or made another in its place: it will not act on the answer, so neither may a replay. */
function tooLate(path: string, n: number): CountersignError {
  return new CountersignError(
    'MODEL_FAILED',
    'A model answered after its call had been given up; the answer is dropped.',
    { details: { path, n } },
  );
}

function toAnswer(response: ModelResponse): ModelAnswer {
  const { requests, inputTokens, outputTokens, totalTokens } = response.usage;
  return {
    usage: { requests, inputTokens, outputTokens, totalTokens },
    output: response.output as ModelAnswer['output'],
    responseId: response.responseId,
  };
}

/** Tools that the provider runs by itself happen outside the ledger; conversations it holds defeat our call ids. */
function assertJournalable(request: ModelRequest): void {
  const hosted = request.tools.find((tool) => tool.type !== 'function');
  if (hosted !== undefined) {
    throw new CountersignError(
      'HOSTED_TOOL_REFUSED',
      `Tool "${hosted.name}" (${hosted.type}) runs outside the ledger; use an action() or a plain function tool.`,
      {
        details: { tool: hosted.name, type: hosted.type },
      },
    );
  }
  if (request.conversationId !== undefined || request.previousResponseId !== undefined) {
    throw new CountersignError(
      'SERVER_HELD_CONVERSATION',
      'conversationId and previousResponseId are refused: call ids could not be made unique.',
    );
  }
}

/**
 * What must be the same for a stored answer to be the answer. Instructions are left out: they often hold the time of day,
 * and the conversation, the tools and the output type say what was asked.
 */
function requestDigest(request: ModelRequest): string {
  const asked = [
    request.input,
    request.tools.map((tool) => tool.name),
    request.handoffs.map((handoff) => handoff.toolName),
    request.outputType,
  ];
  return createHash('sha256').update(JSON.stringify(asked)).digest('hex');
}
