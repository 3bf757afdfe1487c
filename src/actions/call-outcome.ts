/** What one call of `execute` came to, as the ledger is told it. */
import type { SettleOutcome } from './ledger.ts';
import { NeverSent, ProviderRefused } from './outcome.ts';

/** Longest result text that is stored and told to the model, in characters. */
const MAX_RESULT = 1_000_000;

export type CallOutcome = {
  outcome: SettleOutcome;
  evidence: unknown;
  result: string | null;
  reason: string | null;
};

export const SEND_WINDOW_MISSED: CallOutcome = {
  outcome: 'never_sent',
  evidence: null,
  result: null,
  reason: 'SEND_WINDOW_MISSED',
};

export function succeeded(value: unknown): CallOutcome {
  return { outcome: 'succeeded', evidence: value, result: textOfResult(value), reason: null };
}

export function provenOrUnknown(error: unknown): CallOutcome {
  if (error instanceof ProviderRefused) {
    return {
      outcome: 'failed',
      evidence: error.evidence ?? null,
      result: textOfResult(`The provider refused: ${error.message}`),
      reason: 'PROVIDER_REFUSED',
    };
  }
  if (error instanceof NeverSent) {
    return { outcome: 'never_sent', evidence: null, result: null, reason: 'NEVER_SENT' };
  }
  return {
    outcome: 'unknown',
    evidence: null,
    result: null,
    reason: error instanceof Error ? wellFormed(error.constructor.name) : 'THROWN',
  };
}

/** What the model is told of a value. The effect has happened by now, so nothing here may throw. */
export function textOfResult(value: unknown): string {
  if (value === undefined || value === null) {
    return 'done';
  }
  let text: string;
  try {
    text = typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value));
  } catch {
    text = 'done (the result could not be written as JSON)';
  }
  return wellFormed(text.length > MAX_RESULT ? `${text.slice(0, MAX_RESULT)}… (cut)` : text);
}

/** Half a surrogate pair, as a cut text or a provider may leave it, has no UTF-8 and could not be stored. */
function wellFormed(text: string): string {
  // In every Node we support, but typed only from lib ES2024 on.
  return (text as string & { toWellFormed(): string }).toWellFormed();
}
