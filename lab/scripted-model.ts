/** A model that needs no network: the same request gets the same answer, at once, in whatever process. */
import {
  type AgentOutputItem,
  type Model,
  type ModelProvider,
  type ModelRequest,
  type ModelResponse,
  Usage,
} from '@openai/agents';

/** What the model does in its first turn, given the user's text: one call of a tool. */
export type FirstTurn = (prompt: string) => { tool: string; arguments: Record<string, unknown> };

/** First turn: the call. Second turn: the text `last`. */
export function scriptedModel(first: FirstTurn, last: string): Model {
  return {
    async getResponse(request): Promise<ModelResponse> {
      const output = hasResult(request) ? message(last) : call(first(promptOf(request)));
      return {
        usage: new Usage({ requests: 1, inputTokens: 10, outputTokens: 5, totalTokens: 15 }),
        output: [output],
      };
    },
    // biome-ignore lint/correctness/useYield: nothing here streams
    async *getStreamedResponse(): AsyncIterable<never> {
      throw new Error('the scripted model is not streamed');
    },
  };
}

/** Resolves every model name to one model. */
export function providerOf(model: Model): ModelProvider {
  return { getModel: () => model };
}

function hasResult({ input }: ModelRequest): boolean {
  return typeof input !== 'string' && input.some((item) => item.type === 'function_call_result');
}

function promptOf({ input }: ModelRequest): string {
  if (typeof input === 'string') {
    return input;
  }
  const said = input.find((item) => 'role' in item && item.role === 'user');
  const content = said !== undefined && 'content' in said ? said.content : '';
  return typeof content === 'string' ? content : JSON.stringify(content);
}

function call({ tool, arguments: args }: ReturnType<FirstTurn>): AgentOutputItem {
  return {
    type: 'function_call',
    callId: 'call_1',
    name: tool,
    status: 'completed',
    arguments: JSON.stringify(args),
  };
}

function message(text: string): AgentOutputItem {
  return {
    type: 'message',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text }],
  };
}
