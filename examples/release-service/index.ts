/**
 * The outside world, for the demo, the lab and every exactly-once test.
 *
 * Stands at the far end of the flow: the *provider* that an action's `execute` calls and its `lookup` asks.
 * It knows nothing of Countersign; it is an ordinary HTTP service with idempotency keys (or without:
 * `PUT /modes/:kind`), and it counts *calls* and *commits* separately, because "exactly once" is a
 * statement about commits.
 *
 * Invariant: an effect is committed in one synchronous step, counted and logged in that same step.
 * No answer, late or lost, changes what was committed.
 *
 * A crash here loses everything, unless a journal file was given: each log line is written to it before the
 * call goes on, and a process started again on that file remembers all effects, counts and log entries.
 *
 * Read `calls.ts` first (one call, in order), then `faults.ts` (what can be made to go wrong, and when).
 */
export type { ReleaseClient } from './client.ts';
export { ReleaseServiceError, releaseClient } from './client.ts';
export type { ReleaseService } from './server.ts';
export { startReleaseService } from './server.ts';
export type { Counts, Effect, Fault, FaultRequest, LogEntry, LogEvent, Lookup } from './types.ts';
