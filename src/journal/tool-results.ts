import { Suspended } from '../actions/index.ts';
import { assertPlainJson, type JsonValue } from '../digests/index.ts';
import { callFunction } from '../postgres/index.ts';
import type { JournalEnvironment } from './respond.ts';

/** A plain tool's results are for a model to read; a larger one is not recorded, and its tool runs again on a replay. */
const MAX_BYTES = 1_048_576;

/**
 * Answers a plain tool's call from the record of an earlier claim of this segment, or runs it and records the result.
 * Plain tools run at least once: a crash between the two runs it again. A result that is not plain JSON is passed on
 * unrecorded.
 *
 * @throws Suspended (LEASE_LOST) when this worker is no longer the owner.
 */
export async function recordToolResult(
  env: JournalEnvironment,
  recorded: Readonly<Record<string, string>>,
  ask: { callId: string; tool: string; call: () => Promise<unknown> },
): Promise<unknown> {
  const binding = {
    tenant: env.tenant,
    table: 'tool_results',
    column: 'sealed',
    row: `${env.runId}/${ask.callId}`,
  };
  const known = Object.hasOwn(recorded, ask.callId) ? recorded[ask.callId] : undefined;
  if (known !== undefined) {
    return env.keys.openJson('state', Buffer.from(known, 'base64'), binding);
  }
  const result = await ask.call();
  if (ask.callId === '' || !isRecordable(result)) {
    return result;
  }
  const [row] = await callFunction<{ store_tool_result: string }>(env.db, 'store_tool_result', [
    env.tenant,
    env.runId,
    env.epoch,
    ask.callId,
    ask.tool,
    env.keys.sealJson('state', result, binding),
  ]);
  if (row?.store_tool_result !== 'stored') {
    throw new Suspended('LEASE_LOST', true);
  }
  return result;
}

function isRecordable(value: unknown): value is JsonValue {
  try {
    assertPlainJson(value, 'tool result', { maxBytes: MAX_BYTES });
    return true;
  } catch {
    return false;
  }
}
