import { randomUUID } from 'node:crypto';
import { definitionReview, type LedgerAction } from '../actions/index.ts';
import { addUsage, type SegmentResult, STATE_SCHEMA, type UsageNumbers } from '../agents-sdk/index.ts';
import { type RunInput, sealState } from '../checkpoints/index.ts';
import type { JsonValue } from '../digests/index.ts';
import { CountersignError } from '../errors.ts';
import type { JournalEnvironment, JournalRow } from '../journal/index.ts';
import { callFunction, callStep, type Database } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import type { SessionChange } from '../sessions/index.ts';
import type { RegisteredWorkflow } from '../workflows/index.ts';
import type { ClaimedRun } from './claim.ts';

type Owner = { db: Database; keys: KeyRing; run: ClaimedRun };

/**
 * Pause: one fenced transaction with the checkpoint, one approval per call that a person must decide, usage, status.
 *
 * @returns the status after, or null when this worker is no longer the owner.
 */
export async function pause(
  owner: Owner,
  registered: RegisteredWorkflow,
  context: RunInput['context'],
  actions: ReadonlyMap<string, LedgerAction>,
  result: Extract<SegmentResult, { kind: 'paused' }>,
  change: SessionChange | null,
): Promise<string | null> {
  const { db, keys, run } = owner;
  const number = run.segment + 1;
  const manifest = new Set<string>();
  const approvals = [];
  for (const call of result.pending) {
    const action = actions.get(call.callId);
    const definition = registered.actions.get(call.tool);
    if (action === undefined || definition === undefined) {
      throw new CountersignError(
        'TOOL_NOT_GUARDED',
        `The agent paused at ${call.tool}, which is not an action() of this workflow.`,
        {
          details: { tool: call.tool },
        },
      );
    }
    manifest.add(definition.manifest);
    if (action.state === 'prepared') {
      approvals.push(requestApproval(owner, definition, action));
    }
  }
  const sealed = sealState(
    keys,
    { tenant: run.tenant, runId: run.runId, number },
    { workflow: run.workflow, context },
    result.stateText(),
  );
  const { status } = (await callStep(db, 'pause_runs', {
    tenant: run.tenant,
    run: run.runId,
    epoch: run.epoch,
    number,
    sealed,
    state_schema: STATE_SCHEMA,
    manifest: [...manifest],
    approvals,
    usage: addUsage(run.usage, result.usage),
    session: change,
  })) as { status: string | null };
  return status;
}

export function requestApproval(
  { keys, run }: { keys: KeyRing; run: { tenant: string } },
  definition: Parameters<typeof definitionReview>[0],
  action: Pick<LedgerAction, 'id' | 'sealedArguments'>,
) {
  const id = randomUUID();
  if (action.sealedArguments === null) {
    throw new Error('a prepared action has no arguments');
  }
  const args = keys.openJson('review', action.sealedArguments, {
    tenant: run.tenant,
    table: 'actions',
    column: 'sealed_arguments',
    row: action.id,
  });
  const rule = definition.approvalFor(args);
  if (rule === null) {
    throw new CountersignError(
      'ARGUMENTS_NOT_STABLE',
      `The approval rule of ${definition.name} gave two answers for the same arguments.`,
      {
        details: { action: definition.name },
      },
    );
  }
  const snapshot = definitionReview(definition, args as JsonValue);
  return {
    id,
    action_id: action.id,
    policy: rule.policy,
    quorum: rule.quorum,
    expires_in_ms: rule.expiresInMs,
    execute_within_ms: rule.executeWithinMs,
    sealed_review: keys
      .sealJson('review', snapshot, {
        tenant: run.tenant,
        table: 'approvals',
        column: 'sealed_review',
        row: id,
      })
      .toString('base64'),
  };
}

/**
 * Puts an action back before a person: an identical one has succeeded since its decision was taken. Lets the run go.
 * See `request_again`; a run that is no longer ours is left alone.
 */
export async function requestAgain(
  { db, keys, run }: Owner,
  definition: Parameters<typeof definitionReview>[0],
  action: LedgerAction,
): Promise<void> {
  const approval = requestApproval({ keys, run }, definition, action);
  await callFunction(db, 'request_again', [
    run.tenant,
    run.runId,
    run.epoch,
    action.id,
    JSON.stringify([approval]),
  ]);
}

/** Finish with the final output. @returns false when this worker is no longer the owner. */
export async function complete(
  owner: Owner,
  result: Extract<SegmentResult, { kind: 'final' }>,
  unstored: JournalRow[],
  change: SessionChange | null,
): Promise<boolean> {
  const { keys, run } = owner;
  const output = keys.sealJson('review', result.output as JsonValue, {
    tenant: run.tenant,
    table: 'runs',
    column: 'sealed_output',
    row: run.runId,
  });
  return finishRun(owner, 'completed', output, null, result.usage, unstored, change);
}

/** Finish with a failure that a repetition would only repeat. `journal`: null when no segment was begun. */
export async function fail(
  owner: Owner,
  code: string,
  journal: Pick<JournalEnvironment, 'answered' | 'unstored'> | null,
): Promise<boolean> {
  return finishRun(owner, 'failed', null, code, journal?.answered ?? null, journal?.unstored ?? [], null);
}

/** Counts model calls that were made and came to nothing. Not fenced: they cost the same, whoever made them. */
export async function countWasted({ db, run }: Omit<Owner, 'keys'>, wasted: UsageNumbers): Promise<void> {
  if (wasted.requests > 0) {
    await callFunction(db, 'count_wasted', [run.tenant, run.runId, run.epoch, JSON.stringify(wasted)]);
  }
}

async function finishRun(
  { db, run }: Owner,
  status: string,
  output: Buffer | null,
  reason: string | null,
  usage: UsageNumbers | null,
  unstored: JournalRow[],
  change: SessionChange | null,
): Promise<boolean> {
  const { finished } = (await callStep(db, 'finish_runs', {
    tenant: run.tenant,
    run: run.runId,
    epoch: run.epoch,
    status,
    sealed_output: output,
    reason,
    usage: usage === null ? run.usage : addUsage(run.usage, usage),
    calls: unstored,
    session: change,
  })) as { finished: boolean };
  return finished;
}

/**
 * Lets a running run go. With a `failure` class the attempt counts and the budget may end in a dead letter; without
 * one the attempt is handed back.
 *
 * @returns the status after, or null when this worker was no longer the owner.
 */
export async function release(
  { db, run }: Omit<Owner, 'keys'>,
  options: {
    reason: string | null;
    delayMs: number;
    failure: 'transient_exhausted' | 'permanent' | 'diverged' | null;
    maxAttempts: number;
  },
): Promise<string | null> {
  const [row] = await callFunction<{ release_run: string | null }>(db, 'release_run', [
    run.tenant,
    run.runId,
    run.epoch,
    options.reason,
    options.delayMs,
    options.failure,
    options.maxAttempts,
    options.failure === null,
  ]);
  return row?.release_run ?? null;
}

export async function park({ db, run }: Omit<Owner, 'keys'>, reason: string): Promise<void> {
  await callFunction(db, 'park_run', [run.tenant, run.runId, run.epoch, reason]);
}

export async function quarantine({ db, run }: Omit<Owner, 'keys'>, reason: string): Promise<void> {
  await callFunction(db, 'quarantine_run', [run.tenant, run.runId, run.epoch, reason]);
}
