/**
 * Runs: from start to the final output.
 *
 *   start ─▶ (relay, queue) ─▶ claim ─▶ resume ─▶ pause | finish | release          any time: sweep, cancel, explain
 *
 * `resume.ts` is the flow of one delivery, in order. Each step is one SQL function that locks the run's row and
 * compares the epoch on it; waiting statuses are computed by `settle_run_status` alone.
 *
 * Invariants: I3, I7, I8, I9. A crash between two steps leaves the state of the last one and a hold that runs out; the
 * next claim goes on from the same checkpoint with the journal and the ledger.
 */
export { cancelRun } from './cancel.ts';
export { listClaims, type RunClaim } from './claims.ts';
export { type Explanation, explain } from './explain.ts';
export { listRuns, type RunSummary, showRun } from './list.ts';
export { releaseQuarantine } from './release-quarantine.ts';
export { type Restarted, restartRun } from './restart.ts';
export { carryDelivery, type DeliveryCounts, newCounts, type WorkerEnvironment } from './resume.ts';
export { type Started, type StartOptions, start } from './start.ts';
export { sweepAll, sweepOnce, unparkOnce } from './sweep.ts';
export { checkVersions, listVersions, type VersionCheck, type VersionCount } from './versions.ts';
