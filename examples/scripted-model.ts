/**
 * A model that needs no key and no network, for the demo and for playing: it reads the conversation and answers by
 * rule, so the same conversation always gets the same answer, in whatever process and however often.
 */
import {
  type AgentInputItem,
  type Model,
  type ModelProvider,
  type ModelRequest,
  type ModelResponse,
  Usage,
} from '@openai/agents';

type Call = { name: string; arguments: Record<string, string | number> };

/** Resolves every model name to the scripted model. */
export function scriptedModelProvider(): ModelProvider {
  return { getModel: () => scriptedModel };
}

const scriptedModel: Model = {
  async getResponse(request: ModelRequest): Promise<ModelResponse> {
    const turn = nextTurn(request);
    return {
      usage: new Usage({ requests: 1, inputTokens: 20, outputTokens: 10, totalTokens: 30 }),
      output: [
        typeof turn === 'string'
          ? {
              type: 'message',
              role: 'assistant',
              status: 'completed',
              content: [{ type: 'output_text', text: turn }],
            }
          : {
              type: 'function_call',
              callId: 'call',
              name: turn.name,
              status: 'completed',
              arguments: JSON.stringify(turn.arguments),
            },
      ],
    };
  },
  // biome-ignore lint/correctness/useYield: our workers ask for whole answers
  async *getStreamedResponse(): AsyncIterable<never> {
    throw new Error('the scripted model is not streamed');
  },
};

/** First turn: the call that the words ask for. After its result: a report. */
function nextTurn(request: ModelRequest): string | Call {
  const items: AgentInputItem[] =
    typeof request.input === 'string' ? [{ role: 'user', content: request.input }] : request.input;
  const last = items.at(-1);
  if (last?.type === 'function_call_result') {
    return `Done. The tool answered: ${textOf(last.output)}`;
  }
  const words = items
    .filter((item) => 'role' in item && item.role === 'user')
    .map((item) => ('content' in item ? textOf(item.content) : ''))
    .join('\n');
  const has = (name: string) => request.tools.some((tool) => tool.name === name);
  if (has('deploy_release')) {
    return deployCall(words) ?? 'Which release, and where? For example: deploy v2.4.1 to production.';
  }
  if (has('refund_order')) {
    return (
      refundCall(words) ?? 'How much, and for which order? For example: refund 25.00 EUR for order 1042.'
    );
  }
  return 'The scripted model knows the tools deploy_release and refund_order only.';
}

function deployCall(words: string): Call | null {
  const release = /\bv?\d+(?:\.\d+)+(?:-[\w.]+)?\b/i.exec(words)?.[0];
  const environment = /\bprod(uction)?\b/i.test(words) ? 'production' : 'staging';
  return release === undefined ? null : { name: 'deploy_release', arguments: { release, environment } };
}

function refundCall(words: string): Call | null {
  const order = /\border\s+#?([\w-]+)/i.exec(words)?.[1];
  const money = /(\d+)(?:\.(\d\d))?\s*(EUR|USD)\b/i.exec(words);
  if (order === undefined || money === null) {
    return null;
  }
  const [, whole, cents, currency = 'EUR'] = money;
  const amountCents = Number(whole) * 100 + Number(cents ?? 0);
  return { name: 'refund_order', arguments: { order, amountCents, currency: currency.toUpperCase() } };
}

/** The text inside a content or tool output, whichever of its shapes it has. */
function textOf(content: unknown): string {
  if (typeof content === 'string') {
    return content;
  }
  const parts: unknown[] = Array.isArray(content) ? content : [content];
  return parts
    .map((part) => (typeof part === 'object' && part !== null && 'text' in part ? String(part.text) : ''))
    .join('');
}
