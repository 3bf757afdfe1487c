import { callFunction, type Database } from '../postgres/index.ts';

export type SweepCounts = {
  looked: number;
  expired: number;
  settled: number;
  announced: number;
  dead_outbox: number;
};

/**
 * One bounded sweep: whatever should move and does not is looked at under its own lock. Ready runs without an unsent
 * announcement and running ones whose hold has passed are announced again, waiting ones get their status computed,
 * lapsed approvals become rows.
 *
 * @param patienceMs how long a run may be quiet before it is looked at.
 */
export async function sweepOnce(
  db: Database,
  options: { limit: number; patienceMs: number },
): Promise<SweepCounts> {
  const due = await callFunction<{ tenant: string; run_id: string }>(db, 'runs_to_sweep', [
    options.limit,
    options.patienceMs,
  ]);
  return sweepAll(db, due, options.patienceMs);
}

/** A worker that has just announced itself looks at once at parked runs that it could carry. */
export async function unparkOnce(
  db: Database,
  options: { limit: number; workflows: string[] },
): Promise<SweepCounts> {
  const due = await callFunction<{ tenant: string; run_id: string }>(db, 'runs_to_unpark', [
    options.limit,
    options.workflows,
  ]);
  return sweepAll(db, due, 0);
}

/** Sweeps each of these. One that fails keeps none of the others from its turn; the first error is thrown at the end. */
export async function sweepAll(
  db: Database,
  due: readonly { tenant: string; run_id: string }[],
  patienceMs: number,
): Promise<SweepCounts> {
  const counts: SweepCounts = { looked: 0, expired: 0, settled: 0, announced: 0, dead_outbox: 0 };
  let failure: unknown;
  for (const { tenant, run_id } of due) {
    try {
      const [row] = await callFunction<{ sweep_run: keyof SweepCounts | 'nothing' }>(db, 'sweep_run', [
        tenant,
        run_id,
        patienceMs,
      ]);
      counts.looked += 1;
      if (row !== undefined && row.sweep_run !== 'nothing') {
        counts[row.sweep_run] += 1;
      }
    } catch (error) {
      failure ??= error;
    }
  }
  if (failure !== undefined) {
    throw failure;
  }
  return counts;
}
