import { randomUUID } from 'node:crypto';
import {
  type ActionDefinition,
  DEFAULT_LOOKUPS,
  readAnswer,
  type SettleOutcome,
  textOfResult,
} from '../actions/index.ts';
import { isCountersignError } from '../errors.ts';
import { gate } from '../failpoints.ts';
import type { Log } from '../log.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import { sweepAll } from '../runs/index.ts';
import type { KeyRing } from '../seal/index.ts';
import type { Registry } from '../workflows/index.ts';

export type ReconcileCounts = Record<
  'asked' | 'found' | 'absent' | 'different' | 'cannot_say' | 'gave_up' | 'repeated',
  number
>;

type Due = { tenant: string; run_id: string; action_id: string };

type Loaded = {
  workflow: string;
  version: string;
  tool: string;
  recovery: string;
  attempt: number;
  sealed_arguments: Buffer;
  absent_after: Date;
  reconcile_tries: number;
  asked_at: Date;
};

/** A look-up is given this long; a provider that does not answer is asked again later. */
const LOOKUP_MS = 15_000;
/** While one reconciler asks, no other takes the action. Longer than a look-up. */
const LEASE_MS = 30_000;

export type ReconcileEnvironment = { db: Database; keys: KeyRing; registry: Registry; log: Log };

/** One bounded pass over due actions, and over idempotent ones whose run may go on by itself. */
export async function reconcileOnce(
  env: ReconcileEnvironment,
  options: { limit: number; leaseMs?: number },
): Promise<ReconcileCounts> {
  const counts: ReconcileCounts = {
    asked: 0,
    found: 0,
    absent: 0,
    different: 0,
    cannot_say: 0,
    gave_up: 0,
    repeated: 0,
  };
  const due = await callFunction<Due>(env.db, 'claim_actions_to_reconcile', [
    options.limit,
    options.leaseMs ?? LEASE_MS,
    [...env.registry.keys()],
  ]);
  for (const action of due) {
    try {
      await reconcileAction(env, action, counts);
    } catch (error) {
      env.log.warn(
        { action: action.action_id, err: error },
        'an action was not reconciled; it is due again later',
      );
    }
  }
  const repeatable = await callFunction<{ tenant: string; run_id: string }>(env.db, 'runs_to_repeat', [
    options.limit,
  ]);
  counts.repeated = (await sweepAll(env.db, repeatable, 0)).settled;
  return counts;
}

async function reconcileAction(env: ReconcileEnvironment, due: Due, counts: ReconcileCounts): Promise<void> {
  const [loaded] = await callFunction<Loaded>(env.db, 'load_action_to_reconcile', [
    due.tenant,
    due.run_id,
    due.action_id,
  ]);
  if (loaded === undefined) {
    return;
  }
  const loadedAt = performance.now();
  const definition = env.registry.get(`${loaded.workflow}@${loaded.version}`)?.actions.get(loaded.tool);
  const budget = definition?.recovery.lookups ?? DEFAULT_LOOKUPS;
  const asked =
    loaded.reconcile_tries > budget
      ? unasked(env, due, 'LOOKUPS_UNANSWERED')
      : await ask(env, definition, due, loaded, () => performance.now() - loadedAt);
  counts.asked += 1;
  counts[asked.outcome] += 1;
  const gaveUp = await settle(env, due, loaded, asked, budget);
  counts.gave_up += Number(gaveUp);
}

type Asked = {
  outcome: 'found' | 'absent' | 'different' | 'cannot_say';
  evidence: unknown;
  /** How long after the action was loaded the provider was asked, in ms. */
  startedMs: number;
  /** Why the provider was not asked, or did not answer: somebody has to put that right before the look-ups are spent. */
  reason: string | null;
};

/** A look-up that could not be made counts like one without an answer: asking must end with a person either way. */
function unasked(env: ReconcileEnvironment, due: Due, reason: string, error?: unknown): Asked {
  const fields = { action: due.action_id, run: due.run_id, code: reason };
  env.log.error(
    error === undefined ? fields : { ...fields, err: error },
    'an action could not be asked about; a person must look once its look-ups are spent',
  );
  return { outcome: 'cannot_say', evidence: null, startedMs: 0, reason };
}

async function ask(
  env: ReconcileEnvironment,
  definition: ActionDefinition | undefined,
  due: Due,
  loaded: Loaded,
  sinceLoaded: () => number,
): Promise<Asked> {
  const find = definition?.recovery.find ?? null;
  if (find === null) {
    // Today's code of this version has no look-up for the tool: an operator's matter, not an answer.
    return unasked(env, due, 'LOOKUP_MISSING');
  }
  let args: unknown;
  try {
    args = env.keys.openJson('review', loaded.sealed_arguments, {
      tenant: due.tenant,
      table: 'actions',
      column: 'sealed_arguments',
      row: due.action_id,
    });
  } catch (error) {
    return unasked(env, due, isCountersignError(error) ? error.code : 'ARGUMENTS_UNREADABLE', error);
  }
  const signal = AbortSignal.timeout(LOOKUP_MS);
  const deadline = new Promise<never>((_resolve, reject) =>
    signal.addEventListener('abort', () => reject(new Error('look-up deadline')), { once: true }),
  );
  let startedMs = 0;
  const askNow = async () => {
    startedMs = sinceLoaded();
    return find({ operationKey: due.action_id, args, signal });
  };
  try {
    const answer = readAnswer(
      await Promise.race([gate('provider', `find:${loaded.tool}`, askNow), deadline]),
    );
    if (answer.found === true) {
      return { outcome: 'found', evidence: answer.receipt, startedMs, reason: null };
    }
    if (answer.found === 'different') {
      return { outcome: 'different', evidence: answer.evidence ?? null, startedMs, reason: null };
    }
    const outcome = answer.found === false ? 'absent' : 'cannot_say';
    return { outcome, evidence: null, startedMs, reason: null };
  } catch (error) {
    env.log.warn({ action: due.action_id, err: error }, 'a look-up failed, which proves nothing');
    return { outcome: 'cannot_say', evidence: null, startedMs, reason: 'LOOKUP_FAILED' };
  }
}

/**
 * Since when the answer is known to be no older, by the database's clock. An absence counts from the earliest moment it
 * may be of; what was found is compared with when the latest attempt was sent, and a reconciler may have been frozen for
 * long between loading the action and asking about it.
 */
function askedAt(loaded: Loaded, asked: Asked): Date {
  return asked.outcome === 'found'
    ? new Date(loaded.asked_at.getTime() + Math.floor(asked.startedMs))
    : loaded.asked_at;
}

/** Records the answer. Returns whether it was the last one: a named person must look now. */
async function settle(
  env: ReconcileEnvironment,
  due: Due,
  loaded: Loaded,
  asked: Asked,
  budget: number,
): Promise<boolean> {
  const receiptId = randomUUID();
  const { tenant, run_id, action_id } = due;
  const text = asked.evidence === null ? null : textOfResult(asked.evidence);
  const outcome: SettleOutcome = asked.outcome === 'found' ? 'succeeded' : asked.outcome;
  const [settled] = await callFunction<{ outcome: string; waits: boolean }>(env.db, 'settle_lookup', [
    tenant,
    run_id,
    action_id,
    loaded.attempt,
    outcome,
    receiptId,
    text === null
      ? null
      : env.keys.seal('state', text, { tenant, table: 'receipts', column: 'sealed', row: receiptId }),
    asked.outcome === 'found'
      ? env.keys.seal('review', textOfResult(asked.evidence), {
          tenant,
          table: 'actions',
          column: 'sealed_result',
          row: action_id,
        })
      : null,
    asked.reason,
    backoffMs(loaded),
    askedAt(loaded, asked),
    budget,
  ]);
  const waits = settled?.waits === true;
  const fields = { action: action_id, attempt: loaded.attempt, answer: outcome, run: run_id };
  env.log.info({ ...fields, outcome: settled?.outcome }, 'asked the provider');
  if (waits) {
    env.log.error({ ...fields, code: 'LOOKUPS_SPENT' }, 'the look-ups are spent: a named person must look');
  }
  return waits;
}

/** 1 s, 2 s, 4 s … at most 5 minutes, with up to a fifth of jitter; never before an absence could count. */
function backoffMs(loaded: Loaded): number {
  const wait =
    Math.min(300_000, 1_000 * 2 ** Math.min(loaded.reconcile_tries - 1, 9)) * (1 + Math.random() / 5);
  const untilAbsenceCounts = loaded.absent_after.getTime() - loaded.asked_at.getTime() + 100;
  return Math.round(Math.min(Math.max(wait, Math.min(untilAbsenceCounts, 300_000)), 360_000));
}
