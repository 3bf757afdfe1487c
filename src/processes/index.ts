/**
 * Processes: what the Procfile's lines run. Each is a loop around one bounded pass of a noun, or BullMQ's consumer
 * around one delivery, plus a clean start (schema, durability, Redis policy are checked) and a bounded stop.
 *
 * They hold no rule of their own. Any of them may be killed at any time and run any number of times at once.
 */
export { runUntilStopped } from './lifetime.ts';
export { type Running, runLoop } from './loop.ts';
export { type ReconcilerOptions, runReconciler } from './reconciler.ts';
export { type RelayOptions, runRelay } from './relay.ts';
export { type ResumeWorker, type ResumeWorkerOptions, runResumeWorker } from './resume-worker.ts';
export {
  type ProcessName,
  type ReadyLine,
  readyLine,
  runProcess,
  type StartedProcess,
} from './run-process.ts';
