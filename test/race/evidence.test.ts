/**
 * What an outcome moves, whoever brings it and however late: authority that is handed back, attempts that are named,
 * evidence that is kept. (Protocol review, A6, B1, B2, B3.)
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { callFunction, type Database } from '../../src/postgres/index.ts';
import { facts } from '../support/run-facts.ts';
import {
  approvedRun,
  cancel,
  claim,
  intend,
  release,
  revoke,
  SQL_WORKFLOW,
  settle,
} from '../support/sql-run.ts';
import { first, loadToReconcile, openSqlStage, provenAbsent, type SqlStage } from '../support/sql-stage.ts';

let stage: SqlStage;
let admin: Database;
let worker: string;

beforeAll(async () => {
  stage = await openSqlStage('evidence');
  ({ admin, worker } = stage);
});

afterEach(() => stage.endSessions());

afterAll(() => stage.close());

describe('A6: the authority of an action that was proven not to have happened', () => {
  it('is handed back, and can be revoked', async () => {
    const run = await provenAbsent(stage);
    expect((await facts(admin, run)).actions[0]).toMatchObject({
      state: 'prepared',
      attempt: 1,
      approval: 'approved',
    });
    expect((await revoke(admin, run, first(run))).outcome).toBe('revoked');
    await claim(admin, run, { wake: 3 });
    expect(await intend(admin, run, first(run))).toMatchObject({ outcome: 'refused', reason: 'revoked' });
  });

  it('is handed back, and expires like any other', async () => {
    const run = await provenAbsent(stage, { executeWithinMs: 150 });
    await sleep(160);
    await claim(admin, run, { wake: 3 });
    expect(await intend(admin, run, first(run))).toMatchObject({ outcome: 'refused', reason: 'expired' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'not_executed', reason: 'expired' });
  });

  it('lets the same key be sent again while it lasts', async () => {
    const run = await provenAbsent(stage);
    await claim(admin, run, { wake: 3 });
    expect(await intend(admin, run, first(run))).toMatchObject({ outcome: 'dispatched', attempt: 2 });
  });

  it('a re-send of an idempotent key needs no fresh approval, but never runs past the execution deadline', async () => {
    const options = {
      recovery: 'idempotent',
      sendWithinMs: 1,
      callTimeoutMs: 1,
      executeWithinMs: 300,
    } as const;
    const run = await approvedRun(admin, worker, [options]);
    await intend(admin, run, first(run));
    await sleep(10);
    expect(await intend(admin, run, first(run))).toMatchObject({ outcome: 'dispatched', attempt: 2 });
    await sleep(310);
    expect((await intend(admin, run, first(run))).outcome).toBe('held');
  });
});

describe('B1 and B2: evidence and attempts', () => {
  it('an absence that belongs to an older attempt moves nothing', async () => {
    const run = await provenAbsent(stage);
    await claim(admin, run, { wake: 3 });
    await intend(admin, run, first(run));
    await settle(admin, run, first(run), { attempt: 2, outcome: 'unknown', epoch: run.epoch });
    // Reconciler 1 asked about attempt 1, and was asleep since.
    const late = await settle(admin, run, first(run), {
      attempt: 1,
      outcome: 'absent',
      source: 'lookup',
      askedAt: new Date(Date.now() + 3_600_000),
    });
    expect(late.outcome).toBe('kept');
    expect((await facts(admin, run)).actions[0]).toMatchObject({
      state: 'outcome_unknown',
      attempt: 2,
      approval: 'consumed',
    });
  });

  it('a late answer about an older attempt does not make unknown the attempt that is under way', async () => {
    const run = await provenAbsent(stage);
    await claim(admin, run, { wake: 3 });
    expect((await intend(admin, run, first(run))).attempt).toBe(2);
    for (const outcome of ['absent', 'different', 'cannot_say'] as const) {
      const late = {
        attempt: 1,
        outcome,
        source: 'lookup',
        askedAt: new Date(Date.now() + 3_600_000),
      } as const;
      expect((await settle(admin, run, first(run), late)).outcome).toBe('kept');
    }
    const after = await facts(admin, run);
    expect(after.actions[0]).toMatchObject({ state: 'dispatched', attempt: 2 });
    expect(after.kinds.filter((kind) => kind === 'action_asked')).toEqual([]);
  });

  it('an absence asked before the attempt’s grace has passed proves nothing', async () => {
    const run = await approvedRun(admin, worker, [
      { sendWithinMs: 10, callTimeoutMs: 10, settlesWithinMs: 3_600_000 },
    ]);
    await intend(admin, run, first(run));
    await settle(admin, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch });
    const asked = await settle(admin, run, first(run), {
      attempt: 1,
      outcome: 'absent',
      source: 'lookup',
      askedAt: new Date(Date.now() + 1_000),
    });
    expect(asked.outcome).toBe('kept');
    expect((await facts(admin, run)).actions[0]).toMatchObject({
      state: 'outcome_unknown',
      approval: 'consumed',
    });
  });

  it('an absence never re-issues by itself when the tool’s author wants a person', async () => {
    const run = await provenAbsent(stage, { reissue: 'by_person' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({
      state: 'outcome_unknown',
      approval: 'consumed',
    });
  });

  it('a receipt that arrives after “absent” settles the action and says that the proof was wrong', async () => {
    const run = await provenAbsent(stage);
    const late = await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
    expect(late.outcome).toBe('settled');
    const after = await facts(admin, run);
    expect(after.actions[0]).toMatchObject({ state: 'succeeded', approval: 'consumed' });
    expect(after.kinds).toContain('contradiction');
  });

  it('a receipt for an older attempt of a look-up while a newer one is out is kept and raises a contradiction', async () => {
    const run = await provenAbsent(stage);
    await claim(admin, run, { wake: 3 });
    await intend(admin, run, first(run));
    const late = await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
    expect(late.outcome).toBe('contradiction');
    const after = await facts(admin, run);
    expect(after.actions[0]).toMatchObject({ state: 'dispatched', attempt: 2 });
    expect(after.kinds).toContain('contradiction');
    const { rows } = await admin.pool.query(
      'select attempt, outcome from countersign.receipts where action_id = $1 order by received_at',
      [first(run).id],
    );
    expect(rows).toContainEqual({ attempt: 1, outcome: 'succeeded' });
  });

  it('an older look-up that found the effect is a contradiction if it began before the new attempt was sent, else not', async () => {
    for (const [sinceDispatchMs, outcome] of [
      [-1_000, 'contradiction'],
      [1_000, 'kept'],
    ] as const) {
      const run = await provenAbsent(stage);
      await claim(admin, run, { wake: 3 });
      await intend(admin, run, first(run));
      const known = { attempt: 1, outcome: 'succeeded', source: 'lookup' } as const;
      const askedAt = new Date(Date.now() + sinceDispatchMs);
      expect((await settle(admin, run, first(run), { ...known, askedAt })).outcome).toBe(outcome);
      expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'dispatched', attempt: 2 });
    }
  });

  it('the first answer to an idempotent key is no contradiction when a later attempt has settled it', async () => {
    const run = await approvedRun(admin, worker, [
      { recovery: 'idempotent', sendWithinMs: 1, callTimeoutMs: 1 },
    ]);
    await intend(admin, run, first(run));
    await sleep(10);
    expect((await intend(admin, run, first(run))).attempt).toBe(2);
    await settle(admin, run, first(run), { attempt: 2, outcome: 'succeeded' });
    const late = await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
    expect(late.outcome).toBe('kept');
    expect((await facts(admin, run)).kinds).not.toContain('contradiction');
  });

  it('a sender’s proof that nothing left counts also after the reconciler has called the attempt unknown', async () => {
    const run = await approvedRun(admin, worker, [{ recovery: 'manual', sendWithinMs: 1, callTimeoutMs: 1 }]);
    await intend(admin, run, first(run));
    await sleep(10);
    await loadToReconcile(stage, run);
    const proof = await settle(admin, run, first(run), {
      attempt: 1,
      outcome: 'never_sent',
      epoch: run.epoch,
    });
    expect(proof.outcome).toBe('settled');
    expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'prepared', approval: 'approved' });
  });

  it('the same receipt told twice is kept once', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    await intend(admin, run, first(run));
    const receiptId = '11111111-1111-4111-8111-111111111111';
    await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded', receiptId });
    expect(
      await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded', receiptId }),
    ).toMatchObject({
      outcome: 'kept',
    });
  });
});

describe('a sender that comes back when its attempt was called absent and another was sent', () => {
  it('and does not know whether its request left, is not passed over in silence', async () => {
    const run = await provenAbsent(stage);
    await claim(admin, run, { wake: 3 });
    await intend(admin, run, first(run));
    expect(await settle(admin, run, first(run), { attempt: 1, outcome: 'unknown' })).toMatchObject({
      outcome: 'kept',
    });
    const after = await facts(admin, run);
    expect(after.kinds).toContain('action_sender_unsure');
    expect(after.actions[0]).toMatchObject({ state: 'dispatched', attempt: 2 });
  });
});

describe('the attempts of a run', () => {
  it('are not spent by a segment whose outcomes are found by somebody else, one after the other', async () => {
    const run = await approvedRun(admin, worker, [{}, {}, {}, {}]);
    const budget = { maxAttempts: 2 };
    for (const action of run.actions) {
      expect(await intend(admin, run, action)).toMatchObject({ outcome: 'dispatched' });
      await settle(admin, run, action, { attempt: 1, outcome: 'unknown', epoch: run.epoch });
      await settle(admin, run, action, { attempt: 1, outcome: 'succeeded', source: 'lookup' });
      const { wake, status } = (await facts(admin, run)).run;
      expect(status).toBe('ready');
      expect(await claim(admin, run, { ...budget, wake })).toMatchObject({ outcome: 'claimed' });
    }
  });
});

describe('B3: nothing stays “dispatched” for ever', () => {
  it('an idempotent attempt that may not be repeated becomes unknown, and a person can close it', async () => {
    const run = await approvedRun(admin, worker, [
      { recovery: 'idempotent', sendWithinMs: 1, callTimeoutMs: 1, budget: 1 },
    ]);
    await intend(admin, run, first(run));
    await sleep(10);
    expect(await dueActions()).toContain(first(run).id);
    await loadToReconcile(stage, run);
    expect((await facts(admin, run)).actions[0]?.state).toBe('outcome_unknown');
    expect(await release(admin, run)).toBe('awaiting_reconciliation');
    expect(
      await settle(admin, run, first(run), { attempt: 1, outcome: 'abandoned', source: 'person' }),
    ).toMatchObject({
      outcome: 'settled',
      run_status: 'ready',
    });
  });

  it('a cancelled run with an idempotent attempt in flight ends when a person closes the attempt', async () => {
    const run = await approvedRun(admin, worker, [
      { recovery: 'idempotent', sendWithinMs: 1, callTimeoutMs: 1 },
    ]);
    await intend(admin, run, first(run));
    await cancel(admin, run);
    await sleep(10);
    expect(await release(admin, run)).toBe('awaiting_reconciliation');
    expect(await dueActions()).toContain(first(run).id);
    await loadToReconcile(stage, run);
    const closed = await settle(admin, run, first(run), {
      attempt: 1,
      outcome: 'abandoned',
      source: 'person',
    });
    expect(closed).toMatchObject({ outcome: 'settled', run_status: 'cancelled' });
  });

  it('an idempotent attempt may be repeated as soon as it is due, although the reconciler has looked at it', async () => {
    const run = await approvedRun(admin, worker, [
      { recovery: 'idempotent', sendWithinMs: 1, callTimeoutMs: 1 },
    ]);
    await intend(admin, run, first(run));
    await sleep(10);
    expect(await dueActions(30_000)).toContain(first(run).id);
    await loadToReconcile(stage, run);
    expect(await intend(admin, run, first(run))).toMatchObject({ outcome: 'dispatched', attempt: 2 });
  });

  it('attempts that can never be repeated do not keep others from being repeated', async () => {
    const spent = { recovery: 'idempotent', sendWithinMs: 1, callTimeoutMs: 1, budget: 1 } as const;
    for (let index = 0; index < 12; index += 1) {
      const run = await approvedRun(admin, worker, [spent]);
      await intend(admin, run, first(run));
      await settle(admin, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch });
    }
    const fresh = await approvedRun(admin, worker, [{ ...spent, budget: 5 }]);
    await intend(admin, fresh, first(fresh));
    await settle(admin, fresh, first(fresh), {
      attempt: 1,
      outcome: 'unknown',
      epoch: fresh.epoch,
      backoffMs: 20,
    });
    await sleep(40);
    const seen = new Set<string>();
    for (let pass = 0; pass < 12; pass += 1) {
      for (const { tenant, run_id } of await callFunction<{ tenant: string; run_id: string }>(
        admin,
        'runs_to_repeat',
        [2],
      )) {
        seen.add(run_id);
        await callFunction(admin, 'sweep_run', [tenant, run_id, 0]);
      }
    }
    expect(seen).toContain(fresh.id);
  });
});

async function dueActions(leaseMs = 1): Promise<string[]> {
  const due = await callFunction<{ action_id: string }>(admin, 'claim_actions_to_reconcile', [
    100,
    leaseMs,
    [SQL_WORKFLOW],
  ]);
  return due.map(({ action_id }) => action_id);
}
