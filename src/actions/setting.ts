import { type Duration, durationMs } from '../duration.ts';
import { CountersignError } from '../errors.ts';

/** The error for a setting of an action; `action` is its name, if it is known where the setting is read. */
export function invalid(action: unknown, field: string, fix: string, cause?: unknown): CountersignError {
  const label = typeof action === 'string' ? `action "${action}"` : 'action()';
  return new CountersignError('ACTION_INVALID', `${label}: ${field} ${fix}`, {
    details: { action: typeof action === 'string' ? action : null, field },
    ...(cause === undefined ? {} : { cause }),
  });
}

/** A timer holds 24 days, and no part of a request takes longer than a week. */
export const REQUEST_MAX_MS = 7 * 86_400_000;

/** @throws ACTION_INVALID for anything that is not at least 1 ms and at most `maxMs`. */
export function settingMs(value: Duration, action: unknown, field: string, maxMs = Infinity): number {
  const limit = maxMs === Infinity ? '' : ` of at most ${maxMs / 86_400_000}d`;
  let ms: number;
  try {
    ms = durationMs(value, field);
  } catch (error) {
    throw invalid(
      action,
      field,
      `must be a positive duration${limit} such as "500ms", "30s", "15m" or "24h".`,
      error,
    );
  }
  if (ms < 1 || ms > maxMs) {
    throw invalid(
      action,
      field,
      `must be a positive duration${limit} such as "500ms", "30s", "15m" or "24h".`,
    );
  }
  return ms;
}
