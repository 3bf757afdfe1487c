/**
 * Every failure a person or a program can meet carries one of these codes.
 * The codes are stable; the texts are not. ERRORS.md documents each (test/tidy.test.ts holds that).
 *
 * `fault` says whose turn it is: `caller` (fix the request), `operator` (fix the deployment),
 * `provider` (the outside world), `countersign` (a bug of ours).
 * `retry` says whether the same call may succeed later with nothing changed.
 */
export const ERROR_CODES = {
  ARGUMENTS_REFUSED: { fault: 'caller', retry: false },
  ARGUMENTS_NOT_STABLE: { fault: 'operator', retry: false },
  NOT_PLAIN_JSON: { fault: 'caller', retry: false },
  SEAL_BINDING_INVALID: { fault: 'countersign', retry: false },
  SEAL_BROKEN: { fault: 'operator', retry: false },
  SEAL_VERSION_UNSUPPORTED: { fault: 'operator', retry: false },
  KEY_MISSING: { fault: 'operator', retry: true },
  KEY_INVALID: { fault: 'operator', retry: false },
  EMBEDDED_POSTGRES_FAILED: { fault: 'operator', retry: false },
  POSTGRES_UNAVAILABLE: { fault: 'operator', retry: true },
  POSTGRES_REFUSED: { fault: 'countersign', retry: false },
  POSTGRES_FORGETFUL: { fault: 'operator', retry: false },
  SCHEMA_MISSING: { fault: 'operator', retry: false },
  SCHEMA_NEWER: { fault: 'operator', retry: false },
  SCHEMA_CHANGED: { fault: 'operator', retry: false },
  REDIS_UNAVAILABLE: { fault: 'operator', retry: true },
  REDIS_MISCONFIGURED: { fault: 'operator', retry: false },
  CONFIG_INVALID: { fault: 'operator', retry: false },
  WORKFLOWS_NOT_LOADED: { fault: 'operator', retry: false },
  WORKFLOW_INVALID: { fault: 'operator', retry: false },
  ACTION_INVALID: { fault: 'operator', retry: false },
  WORKFLOW_UNKNOWN: { fault: 'caller', retry: false },
  INPUT_INVALID: { fault: 'caller', retry: false },
  CLIENT_KEY_CONFLICT: { fault: 'caller', retry: false },
  RUN_NOT_FOUND: { fault: 'caller', retry: false },
  CHECKPOINT_NOT_FOUND: { fault: 'caller', retry: false },
  EFFECTS_AFTER_CHECKPOINT: { fault: 'caller', retry: false },
  ACTIONS_OPEN: { fault: 'caller', retry: true },
  RUN_ACTIVE: { fault: 'caller', retry: true },
  RUN_NOT_QUARANTINED: { fault: 'caller', retry: false },
  RUN_ENDED: { fault: 'caller', retry: false },
  APPROVAL_NOT_FOUND: { fault: 'caller', retry: false },
  APPROVAL_DECIDED: { fault: 'caller', retry: false },
  APPROVAL_EXPIRED: { fault: 'caller', retry: false },
  APPROVAL_CHANGED: { fault: 'caller', retry: false },
  DEAD_LETTER_NOT_FOUND: { fault: 'caller', retry: false },
  ACTION_NOT_FOUND: { fault: 'caller', retry: false },
  ACTION_NOT_OPEN: { fault: 'caller', retry: false },
  ACTION_SENT_AGAIN: { fault: 'caller', retry: false },
  ACTION_HAS_NO_LOOKUP: { fault: 'caller', retry: false },
  ACTION_UNDER_WAY: { fault: 'caller', retry: true },
  SELF_APPROVAL: { fault: 'caller', retry: false },
  SUBJECT_MISSING: { fault: 'caller', retry: false },
  UNAUTHENTICATED: { fault: 'caller', retry: false },
  FORBIDDEN: { fault: 'caller', retry: false },
  LEASE_LOST: { fault: 'countersign', retry: true },
  DIGEST_MISMATCH: { fault: 'operator', retry: false },
  CALL_NOT_IN_LEDGER: { fault: 'operator', retry: false },
  TOOL_NOT_GUARDED: { fault: 'operator', retry: false },
  HOSTED_TOOL_REFUSED: { fault: 'operator', retry: false },
  SERVER_HELD_CONVERSATION: { fault: 'operator', retry: false },
  SESSION_BUSY: { fault: 'caller', retry: true },
  SESSION_MOVED_ON: { fault: 'operator', retry: false },
  SESSION_CONFLICT: { fault: 'operator', retry: false },
  REPLAY_DIVERGED: { fault: 'operator', retry: false },
  STATE_SCHEMA_UNSUPPORTED: { fault: 'operator', retry: false },
  CONTEXT_INVALID: { fault: 'caller', retry: false },
  OUTSIDE_A_RUN: { fault: 'operator', retry: false },
  SEGMENT_TOO_LONG: { fault: 'operator', retry: true },
  MODEL_FAILED: { fault: 'provider', retry: true },
  RUN_FAILED: { fault: 'operator', retry: false },
  JOB_MALFORMED: { fault: 'countersign', retry: false },
  USAGE: { fault: 'caller', retry: false },
  ROUTE_NOT_FOUND: { fault: 'caller', retry: false },
  BODY_TOO_LARGE: { fault: 'caller', retry: false },
  WAIT_TIMED_OUT: { fault: 'caller', retry: true },
  INTERRUPTED: { fault: 'caller', retry: false },
  DEV_ALREADY_RUNNING: { fault: 'caller', retry: false },
  PROCESS_NOT_STARTED: { fault: 'operator', retry: false },
  DEMO_FAILED: { fault: 'countersign', retry: false },
  CHAOS_REFUSED: { fault: 'caller', retry: false },
  PROVIDER_UNAVAILABLE: { fault: 'provider', retry: true },
  INTERNAL: { fault: 'countersign', retry: false },
} as const satisfies Record<
  string,
  { fault: 'caller' | 'operator' | 'provider' | 'countersign'; retry: boolean }
>;

export type ErrorCode = keyof typeof ERROR_CODES;

/** Plain facts about an error: ids, field names, limits. Never argument text, state or a secret. */
export type ErrorDetails = Readonly<Record<string, string | number | boolean | readonly string[] | null>>;

/** The only error class this package throws on purpose. Switch on `code`. */
export class CountersignError extends Error {
  override readonly name = 'CountersignError';
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, options: { details?: ErrorDetails; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details ?? {};
  }

  get fault(): (typeof ERROR_CODES)[ErrorCode]['fault'] {
    return ERROR_CODES[this.code].fault;
  }

  get retry(): boolean {
    return ERROR_CODES[this.code].retry;
  }

  /** What an API body, a CLI `--json` line and a log record show: never the cause, which may quote data. */
  toJSON(): { code: ErrorCode; message: string; details: ErrorDetails } {
    return { code: this.code, message: this.message, details: this.details };
  }
}

/** True for our own error, optionally of one code. */
export function isCountersignError(error: unknown, code?: ErrorCode): error is CountersignError {
  return error instanceof CountersignError && (code === undefined || error.code === code);
}
