/**
 * Countersign's public API. README.md shows it in use; ARCHITECTURE.md follows one run through the folders.
 */
export {
  type ActionCall,
  type ActionOptions,
  type ApprovalRule,
  action,
  type HttpEffect,
  type HttpReceipt,
  httpEffect,
  idempotent,
  type LookupAnswer,
  lookup,
  manual,
  NeverSent,
  neverSent,
  ProviderRefused,
  type Recovery,
  type Review,
  refused,
  transactional,
} from './actions/index.ts';
export {
  type ApprovalCard,
  type ApprovalSummary,
  type Decided,
  decide,
  listApprovals,
  revoke,
  showApproval,
} from './approvals/index.ts';
export type { JsonValue } from './digests/index.ts';
export type { Duration } from './duration.ts';
export { CountersignError, type ErrorCode, isCountersignError } from './errors.ts';
export { type Api, type ApiOptions, runApi } from './http/index.ts';
export { createLog, type Log } from './log.ts';
export {
  type Notification,
  type NotificationSink,
  notificationLog,
  notificationWebhook,
  verifyNotification,
} from './notifications/index.ts';
export { type Database, migrate, openDatabase, type Queryable } from './postgres/index.ts';
export {
  type ReconcilerOptions,
  type RelayOptions,
  type ResumeWorker,
  type ResumeWorkerOptions,
  type Running,
  runReconciler,
  runRelay,
  runResumeWorker,
} from './processes/index.ts';
export {
  cancelRun,
  type Explanation,
  explain,
  listRuns,
  type RunSummary,
  type Started,
  type StartOptions,
  showRun,
  start,
} from './runs/index.ts';
export { KeyRing } from './seal/index.ts';
export {
  loadWorkflows,
  type RunIdentity,
  type Workflow,
  type WorkflowOptions,
  workflow,
} from './workflows/index.ts';
