/**
 * Trouble on purpose: what a fleet must survive, made by hand (`countersign chaos`) or at random (`soak/`).
 *
 *   moment ─▶ trouble ─▶ runs that were under way ─▶ at rest ─▶ the checker's verdict, run by run
 *
 * Each kind of trouble is one function, and stands beside the flow: it publishes copies, forgets jobs (`queue`), kills
 * and drops, and writes nothing to the protocol's tables. It stays on this machine unless told otherwise. A crash here
 * leaves the trouble that was made so far, and a fleet that recovers from it.
 */
export { killWorker } from './kill-worker.ts';
export { assertLoopback } from './loopback.ts';
export { dropConnections, duplicateJobs, type Scope } from './trouble.ts';
export { type EffectsOf, judgeRuns, type RunVerdict } from './verdict.ts';
export { momentOf, runsSince, scopeOf, untilAtRest, type WatchedRun } from './watched-runs.ts';
