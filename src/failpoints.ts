/**
 * The one gate around everything durable or external: each SQL function and commit, each queue and lease operation,
 * each call of a tool and of its look-up, each model call, each posted notification. Because there is no other way out of a process, whoever
 * traces the gate has the complete list of operations that may be interrupted; the crash matrix keeps none by hand.
 *
 * In production it is a comparison with null. Two variables wake it up, for tests of a whole process:
 *
 * - COUNTERSIGN_FAULT, one JSON `PlannedFault`: what goes wrong, once, and where.
 * - COUNTERSIGN_TRACE_OPERATIONS, a file: every operation reached is appended to it, one JSON line each.
 */
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export type OperationKind = 'postgres' | 'queue' | 'provider' | 'model' | 'notification';

/**
 * `error_after` and `delay_after`: the operation took effect; its answer is lost, or comes `ms` later.
 * `stop`: frozen before the operation (SIGSTOP), until somebody sends SIGCONT.
 * `none`: nothing goes wrong; whoever armed it is told that the point is reached.
 */
export const FAULTS = [
  'kill_before',
  'kill_after',
  'error_before',
  'error_after',
  'delay_after',
  'stop',
  'none',
] as const;
export type Fault = (typeof FAULTS)[number];

export type PlannedFault = {
  /** Absent: whatever role this process plays. */
  role?: string;
  operation: string;
  /** 1: the first time. A pass that finds nothing to do does not count. */
  occurrence: number;
  fault: Fault;
  /** For `delay_after`. */
  ms?: number;
};

/** A line of the trace. `occurrence` is 0 for a pass that found nothing. `fired` names the fault injected there. */
export type TraceLine = {
  role: string;
  kind: OperationKind;
  operation: string;
  occurrence: number;
  fired?: Fault;
};

type Armed = {
  fault: PlannedFault | null;
  traceFile: string | null;
  onFired: (() => Promise<void>) | null;
  /** By operation, since the last arming. */
  readonly counts: Map<string, number>;
  readonly idle: Set<string>;
};

/** One process, one gate: a signal that ends the process has no narrower owner. */
let armed: Armed | null = fromEnvironment(process.env);
let role = 'unnamed';

/** Names what this process does, for the trace and for faults meant for one role. */
export function playRole(name: string): void {
  role = name;
}

/** Replaces what the environment said; counting starts over. Null for both: the gate is open again. */
export function arm(
  fault: PlannedFault | null,
  options: { traceFile?: string | null; onFired?: () => Promise<void> } = {},
): void {
  const traceFile = options.traceFile ?? null;
  armed =
    fault === null && traceFile === null
      ? null
      : { fault, traceFile, onFired: options.onFired ?? null, counts: new Map(), idle: new Set() };
}

/** Passes `work` through the gate. `operation` is a stable name: the SQL function's, or `verb:tool`. */
export function gate<T>(kind: OperationKind, operation: string, work: () => Promise<T>): Promise<T> {
  return armed === null ? work() : pass(armed, kind, operation, work);
}

async function pass<T>(
  state: Armed,
  kind: OperationKind,
  operation: string,
  work: () => Promise<T>,
): Promise<T> {
  const occurrence = (state.counts.get(operation) ?? 0) + 1;
  state.counts.set(operation, occurrence);
  const line: TraceLine = { role, kind, operation, occurrence };
  const planned = isPlanned(state.fault, line) ? state.fault : null;
  if (planned !== null && !planned.fault.endsWith('_after')) {
    await fireBefore(state, line, planned);
  }
  let result: T;
  try {
    result = await work();
  } catch (error) {
    trace(state, line);
    throw error;
  }
  if (kind === 'postgres' && foundNothing(result)) {
    state.counts.set(operation, (state.counts.get(operation) ?? 1) - 1);
    traceIdle(state, line);
    return result;
  }
  trace(state, line);
  if (planned?.fault.endsWith('_after') && state.fault === planned) {
    await fireAfter(state, line, planned);
  }
  return result;
}

function isPlanned(fault: PlannedFault | null, line: TraceLine): fault is PlannedFault {
  return (
    fault !== null &&
    fault.operation === line.operation &&
    fault.occurrence === line.occurrence &&
    (fault.role === undefined || fault.role === line.role)
  );
}

async function fireBefore(state: Armed, line: TraceLine, planned: PlannedFault): Promise<void> {
  markFired(state, line, planned);
  switch (planned.fault) {
    case 'kill_before':
      return endProcess();
    case 'error_before':
      throw new AnswerLost(line.operation);
    case 'stop':
      process.kill(process.pid, 'SIGSTOP');
      return;
    default:
      await state.onFired?.();
  }
}

async function fireAfter(state: Armed, line: TraceLine, planned: PlannedFault): Promise<void> {
  markFired(state, line, planned);
  switch (planned.fault) {
    case 'kill_after':
      return endProcess();
    case 'error_after':
      throw new AnswerLost(line.operation);
    default:
      await sleep(planned.ms ?? 0);
  }
}

/** Written before the fault strikes: a killed or frozen process cannot tell. A fault fires once. */
function markFired(state: Armed, line: TraceLine, planned: PlannedFault): void {
  state.fault = null;
  trace(state, { ...line, fired: planned.fault });
}

/** Looks like a connection that broke before the answer came, to every caller that tells errors apart. */
class AnswerLost extends Error {
  override readonly name = 'AnswerLost';
  readonly code = 'ECONNRESET';

  constructor(operation: string) {
    super(`a fault was asked for at ${operation}: the connection was reset`);
  }
}

/** SIGKILL to oneself is delivered before the call returns; the promise is for the type alone. */
function endProcess(): Promise<never> {
  process.kill(process.pid, 'SIGKILL');
  return new Promise(() => undefined);
}

/** A set-returning function without rows: a poll that found nothing to do. */
function foundNothing(result: unknown): boolean {
  return (
    typeof result === 'object' &&
    result !== null &&
    'rows' in result &&
    'command' in result &&
    result.command === 'SELECT' &&
    Array.isArray(result.rows) &&
    result.rows.length === 0
  );
}

function traceIdle(state: Armed, line: TraceLine): void {
  if (!state.idle.has(line.operation)) {
    state.idle.add(line.operation);
    trace(state, { ...line, occurrence: 0 });
  }
}

function trace(state: Armed, line: TraceLine): void {
  if (state.traceFile !== null) {
    appendFileSync(state.traceFile, `${JSON.stringify(line)}\n`);
  }
}

function fromEnvironment(env: NodeJS.ProcessEnv): Armed | null {
  const traceFile = env.COUNTERSIGN_TRACE_OPERATIONS || null;
  const fault = env.COUNTERSIGN_FAULT ? readFault(env.COUNTERSIGN_FAULT) : null;
  return fault === null && traceFile === null
    ? null
    : { fault, traceFile, onFired: null, counts: new Map(), idle: new Set() };
}

/** @throws for anything that is not a fault: a test that injects nothing by a slip would pass for the wrong reason. */
function readFault(text: string): PlannedFault {
  const value = JSON.parse(text) as PlannedFault;
  const sane =
    typeof value.operation === 'string' &&
    Number.isInteger(value.occurrence) &&
    FAULTS.includes(value.fault) &&
    (value.fault !== 'delay_after' || typeof value.ms === 'number');
  if (!sane) {
    throw new Error('COUNTERSIGN_FAULT must be { role?, operation, occurrence, fault, ms? }');
  }
  return value;
}
