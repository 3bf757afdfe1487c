/**
 * Two real sessions, and a delay inside one's statement: the schedules of the protocol review that broke its first
 * edition. Each runs in both orders, because a lock that is taken in the wrong place is seen in one of them only.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { callFunction, type Database } from '../../src/postgres/index.ts';
import { facts } from '../support/run-facts.ts';
import { gateInside, waitsForLock } from '../support/sessions.ts';
import {
  approvedRun,
  cancel,
  claim,
  decideBy,
  finish,
  intend,
  journal,
  pause,
  pausedRun,
  release,
  revoke,
  type SqlRun,
  settle,
  sweep,
} from '../support/sql-run.ts';
import { both, first, loadToReconcile, openSqlStage, type SqlStage } from '../support/sql-stage.ts';

let stage: SqlStage;
let admin: Database;
let worker: string;

beforeAll(async () => {
  stage = await openSqlStage('statements');
  ({ admin, worker } = stage);
});

afterEach(() => stage.endSessions());

afterAll(() => stage.close());

describe('A2: a fence is a locked row', () => {
  it.each([
    ['intend', async (db: pg.Client, run: SqlRun) => (await intend(db, run, first(run))).outcome, 'fenced'],
    [
      'store a model response',
      (db: pg.Client, run: SqlRun) => journal(db, { ...run, actions: [] }, [{}], run.epoch, 7),
      'fenced',
    ],
    ['pause', (db: pg.Client, run: SqlRun) => pause(db, { ...run, actions: [] }, [], run.epoch, 2), null],
    ['finish', (db: pg.Client, run: SqlRun) => finish(db, run), false],
    ['release', (db: pg.Client, run: SqlRun) => release(db, run), null],
    [
      'release with a failure',
      (db: pg.Client, run: SqlRun) => release(db, run, { failure: 'permanent' }),
      null,
    ],
    [
      'park',
      (db: pg.Client, run: SqlRun) => call(db, 'park_run', [run.tenant, run.id, run.epoch, 'KEY_MISSING']),
      null,
    ],
    [
      'quarantine',
      (db: pg.Client, run: SqlRun) =>
        call(db, 'quarantine_run', [run.tenant, run.id, run.epoch, 'SEAL_BROKEN']),
      null,
    ],
  ] as const)(
    'a stale epoch cannot %s, also when it waits behind the claim that made it stale',
    async (_name, step, fenced) => {
      const run = await approvedRun(admin, worker, [{}]);
      const [claimer, stale] = [await stage.session('none'), await stage.session('countersign_worker')];
      await stage.takeOverIn(claimer, run);
      expect(await stage.behind(claimer, stale, () => step(stale, run))).toBe(fenced);
      const after = await facts(admin, run);
      expect(after.run).toMatchObject({
        status: 'running',
        epoch: run.epoch + 1,
        holder: stage.other,
        segment: 1,
      });
      expect(after.actions[0]).toMatchObject({ state: 'prepared', attempt: 0, approval: 'approved' });
      const { rows } = await admin.pool.query(
        'select 1 from countersign.model_calls where run_id = $1 and n = 7',
        [run.id],
      );
      expect(rows).toEqual([]);
    },
  );

  it('a claim that comes in the middle of an intend waits for it and finds the run held', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const [owner, rival] = [
      await stage.slow('countersign_worker'),
      await stage.session('countersign_worker'),
    ];
    const gate = await gateInside(stage.url, 'actions', 'update');
    const intent = intend(owner, run, first(run));
    await gate.reached();
    const rivals = claim(rival, { ...run }, { worker: stage.other });
    await waitsForLock(admin, rival);
    await gate.remove();
    expect((await intent).outcome).toBe('dispatched');
    expect((await rivals).outcome).toBe('held');
  });

  it('a revocation that commits while intend waits is obeyed', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const [reviewer, owner] = [
      await stage.session('countersign_api'),
      await stage.session('countersign_worker'),
    ];
    await reviewer.query('begin');
    expect((await revoke(reviewer, run, first(run))).outcome).toBe('revoked');
    const intent = await stage.behind(reviewer, owner, () => intend(owner, run, first(run)));
    expect(intent).toMatchObject({ outcome: 'refused', reason: 'revoked' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({
      state: 'not_executed',
      reason: 'revoked',
      attempt: 0,
    });
  });

  it('a revocation that comes in the middle of intend is too late and says so', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const [owner, reviewer] = [
      await stage.slow('countersign_worker'),
      await stage.session('countersign_api'),
    ];
    const gate = await gateInside(stage.url, 'approvals', 'update');
    const intent = intend(owner, run, first(run));
    await gate.reached();
    const revoked = revoke(reviewer, run, first(run));
    await waitsForLock(admin, reviewer);
    await gate.remove();
    expect((await intent).outcome).toBe('dispatched');
    expect(await revoked).toMatchObject({ outcome: 'conflict', state: 'consumed' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'dispatched', approval: 'consumed' });
  });

  it('a cancel that commits while intend waits stops the effect', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const [person, owner] = [
      await stage.session('countersign_api'),
      await stage.session('countersign_worker'),
    ];
    await person.query('begin');
    expect((await cancel(person, run)).outcome).toBe('cancelling');
    const intent = await stage.behind(person, owner, () => intend(owner, run, first(run)));
    expect(intent).toMatchObject({ outcome: 'refused', reason: 'cancelled' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'not_executed', attempt: 0 });
  });

  it('a stale worker’s receipt is kept as evidence and settles its attempt, but touches nothing of the run', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    expect((await intend(admin, run, first(run))).outcome).toBe('dispatched');
    const [claimer, stale] = [await stage.session('none'), await stage.session('countersign_worker')];
    await stage.takeOverIn(claimer, run);
    const settled = await stage.behind(claimer, stale, () =>
      settle(stale, run, first(run), { attempt: 1, outcome: 'succeeded', epoch: run.epoch }),
    );
    expect(settled.outcome).toBe('settled');
    const after = await facts(admin, run);
    expect(after.actions[0]).toMatchObject({ state: 'succeeded', approval: 'consumed' });
    expect(after.run).toMatchObject({ status: 'running', epoch: run.epoch + 1, holder: stage.other });
  });

  it('a stale worker that settles unknown does not suspend its successor', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    await intend(admin, run, first(run));
    const [claimer, stale] = [await stage.session('none'), await stage.session('countersign_worker')];
    await stage.takeOverIn(claimer, run);
    await stage.behind(claimer, stale, () =>
      settle(stale, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch, backoffMs: 1_000 }),
    );
    expect((await facts(admin, run)).run).toMatchObject({
      status: 'running',
      epoch: run.epoch + 1,
      holder: stage.other,
    });
  });

  it('a heartbeat that waits behind the take-over of its run extends nothing and reports the run lost', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const [claimer, stale] = [await stage.session('none'), await stage.session('countersign_worker')];
    await stage.takeOverIn(claimer, run);
    const renewed = callFunction<{ run_id: string }>(stale, 'renew_holds', [
      worker,
      3_600_000,
      3_600_000,
      [run.tenant],
      [run.id],
      [run.epoch],
    ]);
    await sleep(50);
    await claimer.query('commit');
    await renewed;
    const again = await callFunction(stale, 'renew_holds', [
      worker,
      1,
      3_600_000,
      [run.tenant],
      [run.id],
      [run.epoch],
    ]);
    expect(again).toEqual([]);
    const after = await facts(admin, run);
    expect(after.run.holder).toBe(stage.other);
    expect((after.run.held_until?.getTime() ?? 0) - Date.now()).toBeGreaterThan(1_000_000);
  });
});

describe('A3: the last two decisions at once', () => {
  it('wake the run once, whichever waits for the other', async () => {
    const run = await pausedRun(admin, worker, [{}, {}]);
    const [alice, bob] = [await stage.session('countersign_api'), await stage.session('countersign_api')];
    const [one, two] = both(run);
    await alice.query('begin');
    expect((await decideBy(alice, run, one)).run_status).toBe('awaiting_approval');
    const last = await stage.behind(alice, bob, () => decideBy(bob, run, two, 'approve', 'bob'));
    expect(last.run_status).toBe('ready');
    expect((await facts(admin, run)).outbox).toEqual([1, 2]);
  });

  it('wake the run exactly once in 40 unaided races, with any mixture of verdicts and a sweep in between', async () => {
    const people = await Promise.all([1, 2, 3].map(() => stage.session('countersign_api')));
    const sweeper = await stage.session('countersign_worker');
    for (let round = 0; round < 40; round += 1) {
      const run = await pausedRun(admin, worker, [{}, {}, {}]);
      await Promise.all([
        ...run.actions.map((action, index) =>
          decideBy(people[index] as pg.Client, run, action, (round + index) % 3 === 0 ? 'reject' : 'approve'),
        ),
        sweep(sweeper, run),
      ]);
      const after = await facts(admin, run);
      expect(after.run).toMatchObject({ status: 'ready', wake: 2 });
      expect(after.outbox.filter((wake) => wake === 2)).toHaveLength(1);
    }
  });

  it('a decision and the expiry of the stage.other approval wake the run once', async () => {
    for (let round = 0; round < 10; round += 1) {
      const run = await pausedRun(admin, worker, [{}, { expiresInMs: 1 }]);
      const [person, sweeper] = [
        await stage.session('countersign_api'),
        await stage.session('countersign_worker'),
      ];
      await sleep(5);
      await Promise.all([decideBy(person, run, both(run)[0]), sweep(sweeper, run)]);
      const after = await facts(admin, run);
      expect(after.run).toMatchObject({ status: 'ready', wake: 2 });
      expect(after.actions.map(({ approval }) => approval)).toEqual(['approved', 'expired']);
    }
  });
});

describe('A4: suspend and settle', () => {
  it('a reconciler’s answer in the middle of “unknown, suspend” waits, and wakes the run', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    await intend(admin, run, first(run));
    const [owner, reconciler] = [
      await stage.slow('countersign_worker'),
      await stage.session('countersign_worker'),
    ];
    const gate = await gateInside(stage.url, 'runs', 'update');
    const suspended = settle(owner, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch });
    await gate.reached();
    const found = settle(reconciler, run, first(run), { attempt: 1, outcome: 'succeeded', source: 'lookup' });
    await waitsForLock(admin, reconciler);
    await gate.remove();
    expect((await suspended).run_status).toBe('awaiting_reconciliation');
    expect(await found).toMatchObject({ outcome: 'settled', run_status: 'ready' });
    expect((await facts(admin, run)).run.status).toBe('ready');
  });

  it('a worker that learns “unknown” after the reconciler has found the effect lets go of a run that is ready', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    await intend(admin, run, first(run));
    const [reconciler, owner] = [
      await stage.session('countersign_worker'),
      await stage.session('countersign_worker'),
    ];
    await reconciler.query('begin');
    await settle(reconciler, run, first(run), { attempt: 1, outcome: 'succeeded', source: 'lookup' });
    const late = await stage.behind(reconciler, owner, () =>
      settle(owner, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch }),
    );
    expect(late.outcome).toBe('kept');
    expect(await release(owner, run)).toBe('ready');
    expect((await facts(admin, run)).actions[0]?.state).toBe('succeeded');
  });

  it('a worker that learns “unknown” after the reconciler has said so suspends all the same', async () => {
    const run = await approvedRun(admin, worker, [{ sendWithinMs: 1, callTimeoutMs: 1 }]);
    await intend(admin, run, first(run));
    await sleep(10);
    await loadToReconcile(stage, run);
    expect((await facts(admin, run)).actions[0]?.state).toBe('outcome_unknown');
    const late = await settle(admin, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch });
    expect(late).toMatchObject({ outcome: 'kept', run_status: 'running' });
    expect(await release(admin, run)).toBe('awaiting_reconciliation');
  });

  it('an unparked, replayed or swept run whose action is unknown waits for it instead of becoming ready', async () => {
    const run = await approvedRun(admin, worker, [{ recovery: 'manual' }]);
    await intend(admin, run, first(run));
    await settle(admin, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch });
    await admin.pool.query(
      "update countersign.runs set status = 'parked', reason = 'NO_CAPABLE_WORKER' where id = $1",
      [run.id],
    );
    expect(await sweep(admin, run)).toBe('settled');
    expect((await facts(admin, run)).run.status).toBe('awaiting_reconciliation');
  });

  it('a sibling’s receipt that arrives after the suspension wakes nothing before the unknown one is settled', async () => {
    const run = await approvedRun(admin, worker, [{}, {}]);
    const [one, two] = both(run);
    await intend(admin, run, one);
    await intend(admin, run, two);
    await settle(admin, run, one, { attempt: 1, outcome: 'unknown', epoch: run.epoch });
    const sibling = await settle(admin, run, two, { attempt: 1, outcome: 'succeeded', epoch: run.epoch });
    expect(sibling).toMatchObject({ outcome: 'settled', run_status: 'awaiting_reconciliation' });
    const found = await settle(admin, run, one, { attempt: 1, outcome: 'succeeded', source: 'lookup' });
    expect(found.run_status).toBe('ready');
  });
});

async function call(db: pg.Client, name: string, values: unknown[]): Promise<unknown> {
  const [row] = await callFunction<Record<string, unknown>>(db, name, values);
  return row?.[name];
}
