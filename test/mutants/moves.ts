/** What a schedule is made of: what may happen to a run on its stage. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Expected } from '../../src/checker/index.ts';
import { callFunction, callStep } from '../../src/postgres/index.ts';
import {
  approvedRun,
  claim,
  intend,
  type SqlAction,
  type SqlRun,
  settle,
  startRun,
} from '../support/sql-run.ts';
import type { Stage } from './stage.ts';

export type Schedule = (stage: Stage) => Promise<Expected>;

export const done: Expected = { ended: true, ends: ['completed'], effects: { a: 1 } };
export const without: Expected = { ended: true, ends: ['completed'], effects: {} };
/** Deadlines that have passed when the next statement is sent. */
export const brief = { sendWithinMs: 1, callTimeoutMs: 1, settlesWithinMs: 1 };

export const first = (run: SqlRun): SqlAction => {
  const [action] = run.actions;
  if (action === undefined) throw new Error('the run has no action');
  return action;
};

/** The holder goes silent, its hold passes, and the other worker takes the run over. Returns the stale epoch. */
export async function takeOver(stage: Stage, run: SqlRun): Promise<number> {
  const stale = run.epoch;
  await stage.admin.pool.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 second' where id = $1",
    [run.id],
  );
  await claim(stage.admin, run, { worker: stage.other });
  return stale;
}

export const approved = (stage: Stage, options = {}) =>
  approvedRun(stage.admin, stage.worker, [options], stage.tenant);

/** A run in its first segment, held. */
export async function claimedRun(stage: Stage): Promise<SqlRun> {
  const run = await startRun(stage.admin, stage.worker, stage.tenant);
  await claim(stage.admin, run);
  return run;
}

/** Sent, and the connection breaks at once: unknown, and nothing has reached the provider so far. */
export async function sendInVain(
  stage: Stage,
  run: SqlRun,
  action: SqlAction,
  attempt: number,
): Promise<void> {
  await intend(stage.admin, run, action);
  await settle(stage.admin, run, action, { attempt, outcome: 'unknown', epoch: run.epoch });
  await sleep(20);
}

/** A named person's word on the attempt they looked for. */
export async function judge(stage: Stage, action: SqlAction, attempt: number, verdict: string, who: string) {
  const noise = Buffer.from('sealed');
  await callFunction(stage.admin, 'resolve_action', [
    stage.tenant,
    action.id,
    attempt,
    verdict,
    who,
    randomUUID(),
    noise,
    noise,
  ]);
}

export async function expire(stage: Stage, run: SqlRun): Promise<void> {
  await stage.admin.pool.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 second' where id = $1",
    [run.id],
  );
}

/** A look-up that began now and found nothing. */
export async function absent(stage: Stage, run: SqlRun, action: SqlAction, attempt: number): Promise<void> {
  const { rows } = await stage.admin.pool.query<{ now: Date }>('select clock_timestamp() as now');
  await settle(stage.admin, run, action, {
    attempt,
    outcome: 'absent',
    source: 'lookup',
    askedAt: rows[0]?.now ?? null,
  });
}

/** The run is carried on: by the next delivery if it was let go, by whoever takes it over if it was not. */
export async function again(stage: Stage, run: SqlRun): Promise<void> {
  await expireIfRunning(stage, run);
  const { rows } = await stage.admin.pool.query<{ wake: number }>(
    'select wake from countersign.runs where id = $1',
    [run.id],
  );
  run.wake = rows[0]?.wake ?? run.wake;
  await claim(stage.admin, run, { worker: stage.other });
}

export async function expireIfRunning(stage: Stage, run: SqlRun): Promise<void> {
  await stage.admin.pool.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 second' where id = $1 and status = 'running'",
    [run.id],
  );
}

export async function callIntend(stage: Stage, run: SqlRun, action: SqlAction, effectiveDigest: string) {
  const { outcome } = (await callStep(stage.admin, 'intend_actions', {
    tenant: run.tenant,
    run: run.id,
    epoch: run.epoch,
    action: action.id,
    tool: action.tool,
    proposed_digest: action.digest,
    effective_digest: effectiveDigest,
  })) as { outcome: string };
  return { outcome };
}
