/** What the matrix says at its end: a table of operations and faults, and every violation with the line that repeats it. */
import type { MatrixResult } from './matrix.ts';
import { operationsOf } from './plan.ts';
import { INJECTED, nameOf, type Schedule } from './schedule.ts';

export type Report = {
  /** Distinct (role, operation) pairs that some scenario reached. */
  operations: number;
  faults: readonly string[];
  /** That ran, clean ones included. */
  schedules: number;
  /** That recovered only with longer deadlines: the machine was busy with other things. */
  retried: number;
  /** Of these, the ones whose fault really struck. */
  fired: number;
  violations: { schedule: string; found: string[]; replay: string }[];
};

export function reportOf(result: MatrixResult, options: { backend: string; pace: number }): Report {
  const wrong = result.outcomes.filter(({ violations }) => violations.length > 0);
  return {
    operations: operationsOf(result.points).length,
    faults: INJECTED,
    schedules: result.outcomes.length,
    retried: result.outcomes.filter(({ retried }) => retried).length,
    fired: result.outcomes.filter(({ fired, schedule }) => fired && schedule.fault !== 'none').length,
    violations: wrong.map(({ schedule, violations }) => ({
      schedule: nameOf(schedule),
      found: violations,
      replay: replayLine(schedule, options),
    })),
  };
}

export function replayLine(schedule: Schedule, options: { backend: string; pace: number }): string {
  return `npm run crash-matrix -- --backend ${options.backend} --pace ${options.pace} --only ${nameOf(schedule)}`;
}

/** One row for each operation: how often each fault struck there, and `!` where something was violated. */
export function tableOf(result: MatrixResult): string {
  const head = ['role', 'operation', ...INJECTED];
  const rows = operationsOf(result.points).map(({ role, operation }) => [
    role,
    operation,
    ...INJECTED.map((fault) => {
      const here = result.outcomes.filter(
        ({ schedule }) =>
          schedule.role === role && schedule.operation === operation && schedule.fault === fault,
      );
      const struck = here.filter(({ fired }) => fired).length;
      const wrong = here.filter(({ violations }) => violations.length > 0).length;
      return here.length === 0 ? '·' : `${struck}${wrong > 0 ? ` !${wrong}` : ''}`;
    }),
  ]);
  const widths = head.map((_, column) => Math.max(...[head, ...rows].map((row) => row[column]?.length ?? 0)));
  return [head, ...rows]
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
