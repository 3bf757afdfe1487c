/** What the service and its client say to each other. */

export type JsonValue = string | number | boolean | null | JsonValue[] | JsonObject;
export type JsonObject = { [field: string]: JsonValue };

/** One thing that happened in the outside world, for good. It is also the receipt a caller gets. */
export type Effect = {
  id: string;
  kind: string;
  /** Null only for a kind with `dedupe: false`, called without a key. */
  key: string | null;
  body: JsonObject;
  committedAt: string;
};

export type Lookup = { found: boolean; effects: Effect[] };

/**
 * - `received`: a well-formed call arrived (this is what `calls` counts)
 * - `held`: the call stands before a closed gate
 * - `committed`: the effect exists
 * - `answered`: a receipt, or the 500 of `wrong_answer`, was written to the caller
 * - `undelivered`: the same, but the caller had gone
 * - `dropped`: a fault destroyed the socket
 * - `refused`: nothing was committed by this call and the caller was told so (fault, 409 or 422)
 * - `lookup`: somebody asked whether an effect exists
 */
export const LOG_EVENTS = [
  'received',
  'held',
  'committed',
  'answered',
  'undelivered',
  'dropped',
  'refused',
  'lookup',
] as const;
export type LogEvent = (typeof LOG_EVENTS)[number];

/** What an event is about. */
export type LogFacts = {
  kind: string;
  key?: string | null;
  effectId?: string;
  status?: number;
  replayed?: boolean;
  gate?: string;
  natural?: string;
  found?: boolean;
};

export type LogEntry = LogFacts & {
  /** 1 for the first event since the last reset; no gaps. */
  seq: number;
  event: LogEvent;
  /** Since this process started; starts over in a new process. */
  monotonicMs: number;
  at: string;
};

export type Counts = {
  calls: number;
  commits: number;
  /** `kind` is where the key was first seen; calls and commits are summed over kinds. */
  byKey: Record<string, { kind: string; calls: number; commits: number }>;
  byKind: Record<string, { calls: number; commits: number }>;
};

export type Fault =
  | { type: 'delay_answer'; ms: number }
  | { type: 'delay_commit'; ms: number }
  | { type: 'commit_then_drop' }
  | { type: 'drop' }
  | { type: 'refuse'; status: number; body?: JsonValue }
  | { type: 'lag_lookup'; ms: number }
  | { type: 'wrong_answer' }
  | { type: 'forget_keys' }
  | { type: 'wait_for_gate'; gate: string; when: 'before_commit' | 'after_commit' };

/** `kind` absent: any kind. `next`: for how many calls (default 1); 0: until cleared. */
export type FaultRequest = { kind?: string; next?: number; fault: Fault };

export type WaitFilter = { kind?: string; key?: string };
