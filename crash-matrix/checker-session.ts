/** S07: whatever was delivered twice, a session's history holds each thing once, in an order that a model accepts. */
import type { Violation } from '../src/checker/index.ts';

/** The parts of a history item that matter here. */
export type HistoryItem = { type?: string; role?: string; callId?: string };

export function checkSession(items: readonly HistoryItem[]): Violation[] {
  const found: Violation[] = [];
  const calls = callIdsOf(items, 'function_call');
  const results = callIdsOf(items, 'function_call_result');
  for (const [name, ids] of [
    ['call', calls],
    ['result', results],
  ] as const) {
    if (new Set(ids).size !== ids.length) {
      found.push(`S07: the session holds a ${name} twice`);
    }
  }
  for (const id of calls) {
    const asked = items.findIndex((item) => item.type === 'function_call' && item.callId === id);
    const answered = items.findIndex((item) => item.type === 'function_call_result' && item.callId === id);
    if (answered < asked) {
      found.push(`S07: the session's call ${id} has no result after it`);
    }
  }
  for (const id of results.filter((result) => !calls.includes(result))) {
    found.push(`S07: the session holds the result of ${id}, which it never asked for`);
  }
  for (const role of ['user', 'assistant']) {
    const said = items.filter((item) => item.role === role).length;
    if (said !== 1) {
      found.push(`S07: the session holds ${said} messages of the ${role}, expected 1`);
    }
  }
  return found;
}

function callIdsOf(items: readonly HistoryItem[], type: string): string[] {
  return items.flatMap((item) => (item.type === type ? [item.callId ?? ''] : []));
}
