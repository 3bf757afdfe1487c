import { createHash } from 'node:crypto';
import type { AgentInputItem, Session, SessionHistoryTransactionArgs } from '@openai/agents';
import { CountersignError } from '../errors.ts';

export type HistoryItem = AgentInputItem;
export type RunSession = Session;

/** How many history transactions are remembered: more than one segment can hold. */
const REMEMBERED = 50;

/**
 * The SDK's session interface over an array, history transactions included. Nothing is stored here: whoever owns the
 * segment takes `items()` and stores them with its checkpoint.
 *
 * @param history changed in place by the SDK's calls.
 * @param operations digests of applied history transactions by operation id.
 */
export function memorySession(
  id: string,
  history: HistoryItem[],
  operations: Record<string, string>,
): { session: RunSession; items(): HistoryItem[]; operations(): Record<string, string> } {
  const session = {
    getSessionId: async () => id,
    getItems: async (limit?: number) =>
      limit === undefined ? [...history] : limit <= 0 ? [] : history.slice(-limit),
    addItems: async (items: AgentInputItem[]) => {
      history.push(...items.map((item) => structuredClone(item)));
    },
    popItem: async () => history.pop(),
    clearSession: async () => {
      history.length = 0;
    },
    applyHistoryTransaction: async ({ operationId, transaction }: SessionHistoryTransactionArgs) => {
      const digest = createHash('sha256').update(JSON.stringify(transaction)).digest('hex');
      const known = operations[operationId];
      if (known === digest) {
        return;
      }
      if (known !== undefined) {
        throw refused('the operation id was used for another transaction');
      }
      if (transaction.type === 'append_items') {
        history.push(...transaction.items.map((item) => structuredClone(item)));
      } else {
        const at = history.length - transaction.expectedSuffix.length;
        if (at < 0 || JSON.stringify(history.slice(at)) !== JSON.stringify(transaction.expectedSuffix)) {
          throw refused('the suffix to replace is not the history’s');
        }
        history.splice(
          at,
          transaction.expectedSuffix.length,
          ...transaction.replacement.map((item) => structuredClone(item)),
        );
      }
      operations[operationId] = digest;
    },
  };
  return {
    session,
    items: () => [...history],
    operations: () => Object.fromEntries(Object.entries(operations).slice(-REMEMBERED)),
  };
}

function refused(why: string): CountersignError {
  return new CountersignError('SESSION_CONFLICT', `The session refused a history change: ${why}.`);
}
