import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CallRequest } from '../agents-sdk/index.ts';
import { digestOf } from '../digests/index.ts';
import { CountersignError, isCountersignError } from '../errors.ts';
import { gate } from '../failpoints.ts';
import type { Log } from '../log.ts';
import type { Database } from '../postgres/index.ts';
import { inTransaction, type Queryable } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { type PreparedArguments, prepareArguments } from './arguments.ts';
import {
  type CallOutcome,
  provenOrUnknown,
  SEND_WINDOW_MISSED,
  succeeded,
  textOfResult,
} from './call-outcome.ts';
import type { ActionCall, ActionDefinition } from './define.ts';
import { type Intent, intendAction, type LedgerAction, refusalText, settleAction } from './ledger.ts';
import { ProviderRefused } from './outcome.ts';
import { Suspended } from './suspended.ts';

/** Arguments that were prepared when the checkpoint was opened, and the text they came from. */
export type ReviewedArguments = { text: string; prepared: PreparedArguments };

/** What the ledger needs to know about the segment an action belongs to. */
export type ActionEnvironment = {
  db: Database;
  keys: KeyRing;
  log: Log;
  tenant: string;
  runId: string;
  epoch: number;
  /** What the workflow's `provide` returned, handed to `execute`. */
  context: unknown;
};

/**
 * Carries one call through the ledger and returns what the model is told.
 *
 *   digest ─▶ intend ─▶ call (own deadline, inside the send window) ─▶ settle
 *
 * @throws Suspended when the outcome cannot be told now, or this worker is no longer the owner.
 * @throws DIGEST_MISMATCH when the call is not the one that was reviewed; the run is quarantined by then.
 */
export async function performAction(
  env: ActionEnvironment,
  definition: ActionDefinition,
  action: LedgerAction,
  call: CallRequest,
  reviewed?: ReviewedArguments,
): Promise<string> {
  if (action.state === 'not_executed' && action.effectiveDigest === null) {
    return refusalText(action.reason);
  }
  if (call.aborted) {
    throw new Suspended('HELD', false);
  }
  const prepared =
    reviewed?.text === call.argumentsText
      ? reviewed.prepared
      : prepareArguments(definition, env.tenant, call.argumentsText);
  // Opened before the ledger is asked: a record that does not open must not look like an attempt.
  const args = openArguments(env, action);
  // The send window opens before the ledger is asked: a process frozen from here on must not send late.
  const started = clocks();
  const ask = {
    tenant: env.tenant,
    runId: env.runId,
    epoch: env.epoch,
    actionId: action.id,
    tool: definition.name,
    proposedDigest: prepared.proposedDigest,
    effectiveDigest: prepared.ok ? prepared.effectiveDigest : '',
  };
  if (definition.recovery.kind === 'transactional') {
    return performInTransaction(env, definition, action, args, ask);
  }
  const intent = await intendAction(env.db, ask);
  if (intent.outcome !== 'dispatched') {
    return answerWithoutCalling(env, action, intent);
  }
  const attempt = intent.attempt ?? 0;
  const outcome = await callProvider(env, definition, action, args, attempt, started);
  return settleAndAnswer(env, action, attempt, outcome);
}

/** Intend refused the call or knows its answer. */
function answerWithoutCalling(env: ActionEnvironment, action: LedgerAction, intent: Intent): string {
  switch (intent.outcome) {
    case 'receipt': {
      if (intent.sealed_result === null) {
        throw new Error('a settled action has no stored result');
      }
      return env.keys.openText('review', intent.sealed_result, resultBinding(env.tenant, action.id));
    }
    case 'refused':
      return refusalText(intent.reason);
    case 'held':
      throw new Suspended('HELD', false);
    case 'decide_again':
      throw new Suspended('DECIDE_AGAIN', false);
    case 'fenced':
      throw new Suspended('LEASE_LOST', true);
    case 'digest_mismatch':
      throw new CountersignError(
        'DIGEST_MISMATCH',
        'The call is not the one that was reviewed; the run is quarantined.',
        {
          details: { action: action.id },
        },
      );
    case 'dispatched':
      throw new Error('a dispatched action is called, not answered');
  }
}

/** Calls `execute` with our own deadline. Whatever the promise does later is kept as evidence, never waited for. */
async function callProvider(
  env: ActionEnvironment,
  definition: ActionDefinition,
  action: LedgerAction,
  args: unknown,
  attempt: number,
  started: Clocks,
): Promise<CallOutcome> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(new Error('call deadline')), definition.callTimeoutMs);
  const call: ActionCall = {
    operationKey: action.id,
    signal: deadline.signal,
    inTime: () => elapsedMs(started) <= definition.sendWithinMs,
    attempt,
    tenant: env.tenant,
    runId: env.runId,
    context: env.context,
  };
  // The send window is looked at as late as this process can: it may have been frozen anywhere before.
  const send = async (): Promise<CallOutcome> =>
    call.inTime() ? succeeded(await definition.execute(args, call)) : SEND_WINDOW_MISSED;
  const running = gate('provider', `execute:${definition.name}`, send).catch(provenOrUnknown);
  const late = new Promise<null>((resolve) =>
    deadline.signal.addEventListener('abort', () => resolve(null), { once: true }),
  );
  try {
    const first = await Promise.race([running, late]);
    if (first !== null) {
      return first;
    }
    running
      .then((outcome) =>
        outcome.outcome === 'unknown' ? undefined : keepLateEvidence(env, action, attempt, outcome),
      )
      .catch((error: unknown) =>
        env.log.error({ err: error, action: action.id }, 'late evidence was not stored'),
      );
    return { outcome: 'unknown', evidence: null, result: null, reason: 'CALL_TIMED_OUT' };
  } finally {
    clearTimeout(timer);
  }
}

async function settleAndAnswer(
  env: ActionEnvironment,
  action: LedgerAction,
  attempt: number,
  known: CallOutcome,
): Promise<string> {
  const settled = await settleUntilAnswered(env, {
    ...settlement(env, action, attempt, known),
    epoch: env.epoch,
    backoffMs: backoffMs(attempt),
  });
  if (known.result !== null && settled.outcome === 'settled') {
    return known.result;
  }
  if (known.result !== null) {
    // Somebody else settled this attempt first, or the proof contradicts the ledger: let the ledger answer.
    env.log.warn({ action: action.id, attempt, outcome: settled.outcome }, 'evidence was kept, not applied');
    throw new Suspended('HELD', false);
  }
  throw new Suspended(
    known.outcome === 'never_sent' ? 'NEVER_SENT' : 'OUTCOME_UNKNOWN',
    settled.run_status !== 'running',
  );
}

/** How often a receipt in hand is offered to a Postgres that gives no answer. Waits 0.2 s, 0.4 s … in between. */
const SETTLE_TRIES = 6;

/** A receipt is worth waiting for: its id makes storing it again harmless. */
async function settleUntilAnswered(
  env: ActionEnvironment,
  known: Parameters<typeof settleAction>[1],
): ReturnType<typeof settleAction> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await settleAction(env.db, known);
    } catch (error) {
      if (!isCountersignError(error, 'POSTGRES_UNAVAILABLE') || tries === SETTLE_TRIES) {
        throw error;
      }
      await sleep(100 * 2 ** tries);
    }
  }
}

async function keepLateEvidence(
  env: ActionEnvironment,
  action: LedgerAction,
  attempt: number,
  known: CallOutcome,
): Promise<void> {
  const settled = await settleAction(env.db, settlement(env, action, attempt, known));
  env.log.warn(
    { action: action.id, attempt, outcome: settled.outcome },
    'an answer arrived after its deadline',
  );
}

function settlement(env: ActionEnvironment, action: LedgerAction, attempt: number, known: CallOutcome) {
  const receiptId = randomUUID();
  const { tenant } = env;
  return {
    tenant,
    runId: env.runId,
    actionId: action.id,
    attempt,
    outcome: known.outcome,
    source: 'worker' as const,
    receiptId,
    sealedReceipt:
      known.evidence === null
        ? null
        : env.keys.seal('state', textOfResult(known.evidence), {
            tenant,
            table: 'receipts',
            column: 'sealed',
            row: receiptId,
          }),
    sealedResult:
      known.result === null ? null : env.keys.seal('review', known.result, resultBinding(tenant, action.id)),
    reason: known.reason,
  };
}

/**
 * The effect is in this database: intend, effect and receipt commit together or not at all. A commit whose answer was
 * lost is re-read by the next claim, which finds either `prepared` or the receipt.
 */
async function performInTransaction(
  env: ActionEnvironment,
  definition: ActionDefinition,
  action: LedgerAction,
  args: unknown,
  ask: Parameters<typeof intendAction>[1],
): Promise<string> {
  const done = await inTransaction(env.db, async (tx) => {
    // The run is locked from here on. A process that freezes in between must not keep it, and the sweep behind it.
    await tx.query(
      ['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout']
        .map((setting) => `set local ${setting} = ${definition.callTimeoutMs}`)
        .join('; '),
    );
    const intent = await intendAction(tx, ask);
    if (intent.outcome !== 'dispatched') {
      return intent;
    }
    const attempt = intent.attempt ?? 0;
    const call: ActionCall & { tx: Queryable } = {
      operationKey: action.id,
      signal: AbortSignal.timeout(definition.callTimeoutMs),
      inTime: () => true,
      attempt,
      tenant: env.tenant,
      runId: env.runId,
      context: env.context,
      tx,
    };
    await tx.query('savepoint effect');
    const known = await Promise.resolve()
      .then(() => gate('provider', `execute:${definition.name}`, async () => definition.execute(args, call)))
      .then(succeeded, async (error: unknown) => {
        if (!(error instanceof ProviderRefused)) {
          throw error;
        }
        await tx.query('rollback to savepoint effect');
        return provenOrUnknown(error);
      });
    await tx.query('select countersign.as_tenant($1)', [env.tenant]);
    await settleAction(tx, { ...settlement(env, action, attempt, known), source: 'transaction' });
    return known.result ?? '';
  });
  // What the ledger wrote when it refused, a wait or a quarantine, is committed by now.
  return typeof done === 'string' ? done : answerWithoutCalling(env, action, done);
}

/** What `execute` is handed: the arguments whose digest was approved, and no others. @throws SEAL_BROKEN, DIGEST_MISMATCH */
function openArguments(env: ActionEnvironment, action: LedgerAction): unknown {
  if (action.sealedArguments === null) {
    throw new Error('an action that may run has no arguments');
  }
  const args = env.keys.openJson('review', action.sealedArguments, {
    tenant: env.tenant,
    table: 'actions',
    column: 'sealed_arguments',
    row: action.id,
  });
  if (digestOf(args) !== action.effectiveDigest) {
    throw new CountersignError(
      'DIGEST_MISMATCH',
      'The stored arguments are not the ones that were reviewed.',
      {
        details: { action: action.id },
      },
    );
  }
  return args;
}

function resultBinding(tenant: string, actionId: string) {
  return { tenant, table: 'actions', column: 'sealed_result', row: actionId };
}

/** Wait before an unproven or unsent attempt is looked at again: 1 s, 2 s, 4 s … at most a minute. */
function backoffMs(attempt: number): number {
  return Math.min(60_000, 1_000 * 2 ** Math.max(0, attempt - 1));
}

type Clocks = { monotonic: number; wall: number };

function clocks(): Clocks {
  return { monotonic: performance.now(), wall: Date.now() };
}

/** The longer of the two clocks: a suspended machine stops the monotonic one, an adjusted clock moves the wall one. */
function elapsedMs(since: Clocks): number {
  return Math.max(performance.now() - since.monotonic, Math.abs(Date.now() - since.wall));
}
