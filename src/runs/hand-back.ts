import { setTimeout as sleep } from 'node:timers/promises';
import { isCountersignError } from '../errors.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import type { ClaimedRun } from './claim.ts';

/** How long an outage may last. After it the hold has long run out, and whoever takes the run over spends an attempt. */
const PATIENCE_MS = 120_000;
/** Per segment, as a multiple of the attempts of a round: what takes Postgres away each time must end some day. */
const CLAIMS_PER_ATTEMPT = 4;

/**
 * Hands a run back that its worker could not carry for want of Postgres, once Postgres answers. See `hand_back_run`.
 *
 * @returns whether it was still ours and is announced, or waits for what it has to.
 */
export async function handBack(db: Database, run: ClaimedRun, maxAttempts: number): Promise<boolean> {
  const end = performance.now() + PATIENCE_MS;
  for (let waitMs = 50; ; waitMs = Math.min(waitMs * 2, 1_000)) {
    try {
      const [row] = await callFunction<{ hand_back_run: string | null }>(db, 'hand_back_run', [
        run.tenant,
        run.runId,
        run.epoch,
        maxAttempts * CLAIMS_PER_ATTEMPT,
      ]);
      return (row?.hand_back_run ?? null) !== null;
    } catch (error) {
      if (!isUnavailable(error) || performance.now() > end) {
        throw error;
      }
      await sleep(waitMs, undefined, { ref: false });
    }
  }
}

export function isUnavailable(error: unknown): boolean {
  return isCountersignError(error) && error.code === 'POSTGRES_UNAVAILABLE';
}
