/**
 * Two real sessions, and a delay inside one's statement: the schedules of the protocol review that broke its first
 * edition. Each runs in both orders, because a lock that is taken in the wrong place is seen in one of them only.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { callFunction, type Database, openDatabase } from '../../src/postgres/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import {
  announceWorker,
  approvedRun,
  cancel,
  chainFaults,
  claim,
  decideBy,
  facts,
  finish,
  gateInside,
  intend,
  journal,
  openSession,
  pause,
  pausedRun,
  release,
  revoke,
  SQL_WORKFLOW,
  type SqlRun,
  settle,
  startRun,
  sweep,
  waitsForLock,
} from '../support/sql-run.ts';

let database: TestDatabase;
let admin: Database;
let worker: string;
let other: string;
const sessions: pg.Client[] = [];

/** A session whose statements stop at a gate. */
const slow = (role: 'countersign_worker' | 'countersign_api') => session(role, 'slow');
async function session(role: 'countersign_worker' | 'countersign_api' | 'none', name = 'quick') {
  const opened = await openSession(database.url, role, name);
  sessions.push(opened);
  return opened;
}

/** The run is taken over by another worker, as after a hold that ran out, in a transaction that stays open. */
async function takeOverIn(tx: pg.Client, run: SqlRun): Promise<void> {
  await tx.query('begin');
  await tx.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 s' where id = $1",
    [run.id],
  );
  await tx.query('select countersign.as_tenant($1)', [run.tenant]);
  const taken = await claim(tx, { ...run }, { worker: other });
  expect(taken.outcome).toBe('claimed');
}

/** Runs `late` in a session that has to wait for `first`'s open transaction, then commits it. */
async function behind<T>(first: pg.Client, second: pg.Client, late: () => Promise<T>): Promise<T> {
  const waiting = late();
  waiting.catch(() => undefined);
  await waitsForLock(admin, second);
  await first.query('commit');
  return waiting;
}

beforeAll(async () => {
  database = await createTestDatabase('statements');
  admin = openDatabase({ url: database.url, role: null, max: 6 });
  worker = await announceWorker(admin);
  other = await announceWorker(admin);
});

afterEach(async () => {
  await Promise.all(sessions.splice(0).map((opened) => opened.end()));
});

afterAll(async () => {
  expect(await chainFaults(admin)).toEqual([]);
  await admin.close();
  await database.drop();
});

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
      const [claimer, stale] = [await session('none'), await session('countersign_worker')];
      await takeOverIn(claimer, run);
      expect(await behind(claimer, stale, () => step(stale, run))).toBe(fenced);
      const after = await facts(admin, run);
      expect(after.run).toMatchObject({ status: 'running', epoch: run.epoch + 1, holder: other, segment: 1 });
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
    const [owner, rival] = [await slow('countersign_worker'), await session('countersign_worker')];
    const gate = await gateInside(database.url, 'actions', 'update');
    const intent = intend(owner, run, first(run));
    await gate.reached();
    const rivals = claim(rival, { ...run }, { worker: other });
    await waitsForLock(admin, rival);
    await gate.remove();
    expect((await intent).outcome).toBe('dispatched');
    expect((await rivals).outcome).toBe('held');
  });

  it('a revocation that commits while intend waits is obeyed', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const [reviewer, owner] = [await session('countersign_api'), await session('countersign_worker')];
    await reviewer.query('begin');
    expect((await revoke(reviewer, run, first(run))).outcome).toBe('revoked');
    const intent = await behind(reviewer, owner, () => intend(owner, run, first(run)));
    expect(intent).toMatchObject({ outcome: 'refused', reason: 'revoked' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({
      state: 'not_executed',
      reason: 'revoked',
      attempt: 0,
    });
  });

  it('a revocation that comes in the middle of intend is too late and says so', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const [owner, reviewer] = [await slow('countersign_worker'), await session('countersign_api')];
    const gate = await gateInside(database.url, 'approvals', 'update');
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
    const [person, owner] = [await session('countersign_api'), await session('countersign_worker')];
    await person.query('begin');
    expect((await cancel(person, run)).outcome).toBe('cancelling');
    const intent = await behind(person, owner, () => intend(owner, run, first(run)));
    expect(intent).toMatchObject({ outcome: 'refused', reason: 'cancelled' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'not_executed', attempt: 0 });
  });

  it('a stale worker’s receipt is kept as evidence and settles its attempt, but touches nothing of the run', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    expect((await intend(admin, run, first(run))).outcome).toBe('dispatched');
    const [claimer, stale] = [await session('none'), await session('countersign_worker')];
    await takeOverIn(claimer, run);
    const settled = await behind(claimer, stale, () =>
      settle(stale, run, first(run), { attempt: 1, outcome: 'succeeded', epoch: run.epoch }),
    );
    expect(settled.outcome).toBe('settled');
    const after = await facts(admin, run);
    expect(after.actions[0]).toMatchObject({ state: 'succeeded', approval: 'consumed' });
    expect(after.run).toMatchObject({ status: 'running', epoch: run.epoch + 1, holder: other });
  });

  it('a stale worker that settles unknown does not suspend its successor', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    await intend(admin, run, first(run));
    const [claimer, stale] = [await session('none'), await session('countersign_worker')];
    await takeOverIn(claimer, run);
    await behind(claimer, stale, () =>
      settle(stale, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch, backoffMs: 1_000 }),
    );
    expect((await facts(admin, run)).run).toMatchObject({
      status: 'running',
      epoch: run.epoch + 1,
      holder: other,
    });
  });

  it('a heartbeat that waits behind the take-over of its run extends nothing and reports the run lost', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const [claimer, stale] = [await session('none'), await session('countersign_worker')];
    await takeOverIn(claimer, run);
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
    expect(after.run.holder).toBe(other);
    expect((after.run.held_until?.getTime() ?? 0) - Date.now()).toBeGreaterThan(1_000_000);
  });
});

describe('A3: the last two decisions at once', () => {
  it('wake the run once, whichever waits for the other', async () => {
    const run = await pausedRun(admin, worker, [{}, {}]);
    const [alice, bob] = [await session('countersign_api'), await session('countersign_api')];
    const [one, two] = both(run);
    await alice.query('begin');
    expect((await decideBy(alice, run, one)).run_status).toBe('awaiting_approval');
    const last = await behind(alice, bob, () => decideBy(bob, run, two, 'approve', 'bob'));
    expect(last.run_status).toBe('ready');
    expect((await facts(admin, run)).outbox).toEqual([1, 2]);
  });

  it('wake the run exactly once in 40 unaided races, with any mixture of verdicts and a sweep in between', async () => {
    const people = await Promise.all([1, 2, 3].map(() => session('countersign_api')));
    const sweeper = await session('countersign_worker');
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

  it('a decision and the expiry of the other approval wake the run once', async () => {
    for (let round = 0; round < 10; round += 1) {
      const run = await pausedRun(admin, worker, [{}, { expiresInMs: 1 }]);
      const [person, sweeper] = [await session('countersign_api'), await session('countersign_worker')];
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
    const [owner, reconciler] = [await slow('countersign_worker'), await session('countersign_worker')];
    const gate = await gateInside(database.url, 'runs', 'update');
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
    const [reconciler, owner] = [await session('countersign_worker'), await session('countersign_worker')];
    await reconciler.query('begin');
    await settle(reconciler, run, first(run), { attempt: 1, outcome: 'succeeded', source: 'lookup' });
    const late = await behind(reconciler, owner, () =>
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
    await load(run);
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

describe('A5: the claim spends no wake', () => {
  it('the same delivery claims again once the dead worker’s hold has run out', async () => {
    const run = await startRun(admin, worker);
    expect((await claim(admin, run, { ttlMs: 80 })).outcome).toBe('claimed');
    expect((await claim(admin, run, { worker: other })).outcome).toBe('held');
    await sleep(100);
    expect((await claim(admin, run, { worker: other })).outcome).toBe('claimed');
    expect((await facts(admin, run)).run).toMatchObject({ epoch: 2, wake: 1, attempts_in_round: 2 });
  });

  it('a run whose worker died is announced again by the sweep with the wake it has', async () => {
    const run = await startRun(admin, worker);
    await claim(admin, run, { ttlMs: 1 });
    await admin.pool.query('update countersign.outbox set sent_at = clock_timestamp() where run_id = $1', [
      run.id,
    ]);
    await sleep(10);
    expect(await sweep(admin, run)).toBe('announced');
    expect((await facts(admin, run)).outbox).toEqual([1, 1]);
  });

  it('a delivery of an older wake claims nothing and costs no attempt', async () => {
    const run = await pausedRun(admin, worker, [{}]);
    await decideBy(admin, run, first(run));
    expect((await claim(admin, run, { wake: 1 })).outcome).toBe('stale');
    expect((await facts(admin, run)).run).toMatchObject({ status: 'ready', attempts_in_round: 0 });
  });

  it('of twenty deliveries at once one claims, and one more after each dead hold', async () => {
    const run = await startRun(admin, worker);
    const claimers = await Promise.all(Array.from({ length: 20 }, () => session('countersign_worker')));
    const outcomes = async () =>
      (await Promise.all(claimers.map((db) => claim(db, { ...run }, { ttlMs: 400 })))).map(
        ({ outcome }) => outcome,
      );
    expect((await outcomes()).filter((outcome) => outcome === 'claimed')).toHaveLength(1);
    await sleep(420);
    expect((await outcomes()).filter((outcome) => outcome === 'claimed')).toHaveLength(1);
  });
});

describe('A6: the authority of an action that was proven not to have happened', () => {
  it('is handed back, and can be revoked', async () => {
    const run = await provenAbsent();
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
    const run = await provenAbsent({ executeWithinMs: 150 });
    await sleep(160);
    await claim(admin, run, { wake: 3 });
    expect(await intend(admin, run, first(run))).toMatchObject({ outcome: 'refused', reason: 'expired' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'not_executed', reason: 'expired' });
  });

  it('lets the same key be sent again while it lasts', async () => {
    const run = await provenAbsent();
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
    const run = await provenAbsent();
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
    const run = await provenAbsent();
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

  it('a receipt that names the run which a restart has replaced still finds its action', async () => {
    const run = await provenAbsent();
    const newRun = crypto.randomUUID();
    const [restarted] = await callFunction<{ outcome: string }>(admin, 'restart_run', [
      run.tenant,
      run.id,
      1,
      newRun,
      '1',
      Buffer.from('sealed'),
      '[]',
      'olga',
      'a better prompt',
    ]);
    expect(restarted?.outcome).toBe('restarted');
    const late = await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
    expect(late.outcome).toBe('settled');
    const after = await facts(admin, { ...run, id: newRun });
    expect(after.actions[0]).toMatchObject({ state: 'succeeded' });
    expect(after.kinds).toContain('contradiction');
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
    const run = await provenAbsent({ reissue: 'by_person' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({
      state: 'outcome_unknown',
      approval: 'consumed',
    });
  });

  it('a receipt that arrives after “absent” settles the action and says that the proof was wrong', async () => {
    const run = await provenAbsent();
    const late = await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
    expect(late.outcome).toBe('settled');
    const after = await facts(admin, run);
    expect(after.actions[0]).toMatchObject({ state: 'succeeded', approval: 'consumed' });
    expect(after.kinds).toContain('contradiction');
  });

  it('a receipt for an older attempt of a look-up while a newer one is out is kept and raises a contradiction', async () => {
    const run = await provenAbsent();
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
    await load(run);
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

describe('B3: nothing stays “dispatched” for ever', () => {
  it('an idempotent attempt that may not be repeated becomes unknown, and a person can close it', async () => {
    const run = await approvedRun(admin, worker, [
      { recovery: 'idempotent', sendWithinMs: 1, callTimeoutMs: 1, budget: 1 },
    ]);
    await intend(admin, run, first(run));
    await sleep(10);
    expect(await dueActions()).toContain(first(run).id);
    await load(run);
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
    await load(run);
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
    await load(run);
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

describe('B7: the clock is read after the lock', () => {
  it('a decision that waited behind a lock until past decide_before is expired', async () => {
    const run = await pausedRun(admin, worker, [{ expiresInMs: 300 }]);
    const [blocker, person] = [await session('none'), await session('countersign_api')];
    await blocker.query('begin');
    await blocker.query('select 1 from countersign.runs where id = $1 for no key update', [run.id]);
    const decision = decideBy(person, run, first(run));
    await waitsForLock(admin, person);
    await sleep(320);
    await blocker.query('commit');
    expect(await decision).toMatchObject({ outcome: 'expired', state: 'expired', run_status: 'ready' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'not_executed', reason: 'expired' });
  });

  it('a decision inside a caller’s long transaction is judged by the moment, not by the transaction’s start', async () => {
    const run = await pausedRun(admin, worker, [{ expiresInMs: 200 }]);
    const person = await session('countersign_api');
    await person.query('begin');
    await person.query('select 1');
    await sleep(220);
    expect((await decideBy(person, run, first(run))).outcome).toBe('expired');
    await person.query('commit');
  });

  it('an intend that waited behind a lock until past execute_before is refused', async () => {
    const run = await approvedRun(admin, worker, [{ executeWithinMs: 300 }]);
    const [blocker, owner] = [await session('none'), await session('countersign_worker')];
    await blocker.query('begin');
    await blocker.query('select 1 from countersign.runs where id = $1 for no key update', [run.id]);
    const intent = intend(owner, run, first(run));
    await waitsForLock(admin, owner);
    await sleep(320);
    await blocker.query('commit');
    expect(await intent).toMatchObject({ outcome: 'refused', reason: 'expired' });
    expect((await facts(admin, run)).actions[0]).toMatchObject({ state: 'not_executed', attempt: 0 });
  });
});

describe('B5 and B6: ends', () => {
  it('a late receipt of a cancelled run is kept and does not revive it', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    await intend(admin, run, first(run));
    expect(await cancel(admin, run)).toMatchObject({ outcome: 'cancelling', in_flight: [first(run).id] });
    expect(
      await settle(admin, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch }),
    ).toMatchObject({
      run_status: 'awaiting_reconciliation',
    });
    expect(
      await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded', source: 'lookup' }),
    ).toMatchObject({
      outcome: 'settled',
      run_status: 'cancelled',
    });
    expect(await sweep(admin, run)).toBe('nothing');
  });

  it('a decision on a dead-lettered run is recorded and does not pull it out', async () => {
    const run = await pausedRun(admin, worker, [{}]);
    await admin.pool.query(
      "update countersign.runs set status = 'dead_lettered', reason = 'TEST' where id = $1",
      [run.id],
    );
    const decided = await decideBy(admin, run, first(run));
    expect(decided).toMatchObject({ outcome: 'approved', run_status: 'dead_lettered' });
    expect(await sweep(admin, run)).toBe('nothing');
  });

  it('a run whose worker died and that no living worker can carry is parked, not left running', async () => {
    const run = await startRun(admin, worker);
    await claim(admin, run, { ttlMs: 1 });
    await sleep(10);
    await admin.pool.query('update countersign.workers set alive_until = clock_timestamp()');
    try {
      await sweep(admin, run);
      expect((await facts(admin, run)).run).toMatchObject({ status: 'parked', reason: 'NO_CAPABLE_WORKER' });
      expect(await finish(admin, run)).toBe(false);
    } finally {
      await admin.pool.query(
        "update countersign.workers set alive_until = clock_timestamp() + interval '1 h'",
      );
    }
    await sweep(admin, run);
    expect((await facts(admin, run)).run).toMatchObject({ status: 'ready', wake: 2 });
  });
});

/** An action whose first attempt has been proven absent. */
async function provenAbsent(more: Parameters<typeof pausedRun>[2][number] = {}): Promise<SqlRun> {
  const run = await approvedRun(admin, worker, [
    { sendWithinMs: 1, callTimeoutMs: 1, settlesWithinMs: 1, ...more },
  ]);
  await intend(admin, run, first(run));
  await settle(admin, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch });
  await settle(admin, run, first(run), {
    attempt: 1,
    outcome: 'absent',
    source: 'lookup',
    askedAt: new Date(Date.now() + 1_000),
  });
  return run;
}

const load = (run: SqlRun) =>
  callFunction(admin, 'load_action_to_reconcile', [run.tenant, run.id, first(run).id]);

async function dueActions(leaseMs = 1): Promise<string[]> {
  const due = await callFunction<{ action_id: string }>(admin, 'claim_actions_to_reconcile', [
    100,
    leaseMs,
    [SQL_WORKFLOW],
  ]);
  return due.map(({ action_id }) => action_id);
}

async function call(db: pg.Client, name: string, values: unknown[]): Promise<unknown> {
  const [row] = await callFunction<Record<string, unknown>>(db, name, values);
  return row?.[name];
}

function first(run: SqlRun) {
  return both(run)[0];
}

function both(run: SqlRun) {
  const [one, two = one] = run.actions;
  if (one === undefined || two === undefined) throw new Error('the run has no action');
  return [one, two] as const;
}
