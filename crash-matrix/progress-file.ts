/** Finished schedules, one JSON line each, so that a matrix that was interrupted goes on where it was. */
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import type { Outcome } from './run-schedule.ts';
import { nameOf } from './schedule.ts';

type Line = { schedule: string; fired: boolean; violations: string[]; tookMs: number };

/** Names of what finished without a violation; what was violated runs again. */
export function readFinished(file: string): Set<string> {
  if (!existsSync(file)) {
    return new Set();
  }
  const text = readFileSync(file, 'utf8');
  // A line that a kill cut short is a schedule that runs again.
  const lines = text.slice(0, text.lastIndexOf('\n') + 1).split('\n');
  return new Set(
    lines
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Line)
      .filter(({ violations }) => violations.length === 0)
      .map(({ schedule }) => schedule),
  );
}

export function appendFinished(file: string, { schedule, fired, violations, tookMs }: Outcome): void {
  const line: Line = { schedule: nameOf(schedule), fired, violations, tookMs };
  appendFileSync(file, `${JSON.stringify(line)}\n`);
}
