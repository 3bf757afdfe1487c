/**
 * When things are judged: which wake a claim answers, by which clock a deadline has passed, and what may still move at
 * the end of a run. (Protocol review, A5, B5, B6, B7.)
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../src/postgres/index.ts';
import { facts } from '../support/run-facts.ts';
import { waitsForLock } from '../support/sessions.ts';
import {
  approvedRun,
  cancel,
  claim,
  decideBy,
  finish,
  intend,
  pausedRun,
  settle,
  startRun,
  sweep,
} from '../support/sql-run.ts';
import { first, openSqlStage, type SqlStage } from '../support/sql-stage.ts';

let stage: SqlStage;
let admin: Database;
let worker: string;

beforeAll(async () => {
  stage = await openSqlStage('moments');
  ({ admin, worker } = stage);
});

afterEach(() => stage.endSessions());

afterAll(() => stage.close());

describe('A5: the claim spends no wake', () => {
  it('the same delivery claims again once the dead worker’s hold has run out', async () => {
    const run = await startRun(admin, worker);
    expect((await claim(admin, run, { ttlMs: 80 })).outcome).toBe('claimed');
    expect((await claim(admin, run, { worker: stage.other })).outcome).toBe('held');
    await sleep(100);
    expect((await claim(admin, run, { worker: stage.other })).outcome).toBe('claimed');
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
    const claimers = await Promise.all(Array.from({ length: 20 }, () => stage.session('countersign_worker')));
    const outcomes = async () =>
      (await Promise.all(claimers.map((db) => claim(db, { ...run }, { ttlMs: 400 })))).map(
        ({ outcome }) => outcome,
      );
    expect((await outcomes()).filter((outcome) => outcome === 'claimed')).toHaveLength(1);
    await sleep(420);
    expect((await outcomes()).filter((outcome) => outcome === 'claimed')).toHaveLength(1);
  });
});

describe('B7: the clock is read after the lock', () => {
  it('a decision that waited behind a lock until past decide_before is expired', async () => {
    const run = await pausedRun(admin, worker, [{ expiresInMs: 300 }]);
    const [blocker, person] = [await stage.session('none'), await stage.session('countersign_api')];
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
    const person = await stage.session('countersign_api');
    await person.query('begin');
    await person.query('select 1');
    await sleep(220);
    expect((await decideBy(person, run, first(run))).outcome).toBe('expired');
    await person.query('commit');
  });

  it('an intend that waited behind a lock until past execute_before is refused', async () => {
    const run = await approvedRun(admin, worker, [{ executeWithinMs: 300 }]);
    const [blocker, owner] = [await stage.session('none'), await stage.session('countersign_worker')];
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
