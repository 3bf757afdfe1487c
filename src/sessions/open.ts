import type { HistoryItem, RunSession } from '../agents-sdk/index.ts';
import { memorySession } from '../agents-sdk/index.ts';
import type { JsonValue } from '../digests/index.ts';
import type { KeyRing } from '../seal/index.ts';

/** A session as the claim loads it. */
export type StoredSession = {
  id: string;
  version: number;
  /** Sealed items in order, base64. */
  items: string[];
  operations: Record<string, string>;
  /** At the run's first claim: calls that earlier runs may have left unanswered, with their action's state. */
  left_open: Record<string, string> | null;
};

/** What a segment changed: the first `base` items stay, `items` follow. */
export type SessionChange = { base: number; items: string[]; operations: Record<string, string> };

export type OpenedSession = {
  session: RunSession;
  /** Null when nothing changed. */
  change(): SessionChange | null;
};

/** Opens a session for one segment. @throws SEAL_BROKEN, KEY_MISSING */
export function openSession(keys: KeyRing, tenant: string, stored: StoredSession): OpenedSession {
  const bindingAt = (position: number) => ({
    tenant,
    table: 'session_items',
    column: 'sealed',
    row: stored.id,
    sequence: position,
  });
  const before = stored.items.map(
    (sealed, position) =>
      keys.openJson('state', Buffer.from(sealed, 'base64'), bindingAt(position)) as unknown as HistoryItem,
  );
  const history = stored.left_open === null ? [...before] : answerOrphans(before, stored.left_open);
  const memory = memorySession(stored.id, history, { ...stored.operations });
  return {
    session: memory.session,
    change() {
      const after = memory.items();
      const base = commonPrefix(before, after);
      if (base === before.length && base === after.length) {
        return null;
      }
      const items = after
        .slice(base)
        .map((item, index) =>
          keys.sealJson('state', item as unknown as JsonValue, bindingAt(base + index)).toString('base64'),
        );
      return { base, items, operations: memory.operations() };
    },
  };
}

/** Items are replaced, never changed in place, so the same object is the same item. */
function commonPrefix(before: readonly HistoryItem[], after: readonly HistoryItem[]): number {
  let length = 0;
  while (length < before.length && length < after.length && before[length] === after[length]) {
    length += 1;
  }
  return length;
}

/**
 * A run that was given up, failed or cancelled may have left calls without a result. Models refuse such a history, and
 * nobody should believe that nothing happened: each gets an explicit result from what the ledger knows.
 */
function answerOrphans(history: readonly HistoryItem[], states: Record<string, string>): HistoryItem[] {
  const answered = new Set(
    history.flatMap((item) => (item.type === 'function_call_result' ? [item.callId] : [])),
  );
  return history.flatMap((item) => {
    if (item.type !== 'function_call' || answered.has(item.callId)) {
      return [item];
    }
    const result: HistoryItem = {
      type: 'function_call_result',
      callId: item.callId,
      name: item.name,
      status: 'completed',
      output: { type: 'text', text: orphanText(states[item.callId]) },
    };
    return [item, result];
  });
}

function orphanText(state: string | undefined): string {
  switch (state) {
    case 'succeeded':
      return 'Executed; the run that asked for it was given up before it could use the result.';
    case 'dispatched':
    case 'outcome_unknown':
    case 'abandoned':
      return 'The outcome of this call is unknown. Do not repeat it without checking.';
    default:
      return 'Not executed: the run that asked for it ended first.';
  }
}
