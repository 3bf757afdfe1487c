import { CountersignError } from './errors.ts';

/** Milliseconds as a number, or text such as `500ms`, `30s`, `15m`, `24h`, `7d`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`;

const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** No deadline of this system is further away than ten years; a larger number is a slip of units. */
const MAX_MS = 10 * 366 * UNIT_MS.d;

/**
 * @param field named in the error.
 * @throws CONFIG_INVALID for anything that is not a positive duration of at most ten years.
 */
export function durationMs(value: Duration, field: string): number {
  const match = typeof value === 'string' ? /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(value) : null;
  const ms =
    typeof value === 'number'
      ? value
      : match === null
        ? Number.NaN
        : Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS];
  if (!Number.isFinite(ms) || ms <= 0 || ms > MAX_MS) {
    throw new CountersignError(
      'CONFIG_INVALID',
      `${field} must be a positive duration such as "500ms", "30s", "15m", "24h" or "7d".`,
      {
        details: { field },
      },
    );
  }
  return Math.round(ms);
}
