import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/postgres/index.ts';
import { encodeCall, type StepCall, statementFor } from '../../src/postgres/steps.ts';
import { chainFaults } from '../support/run-facts.ts';
import { waitsForLock } from '../support/sessions.ts';
import { approvedRun, claim, finish, intend, type SqlRun, settle, startRun } from '../support/sql-run.ts';
import { first, openSqlStage, type SqlStage } from '../support/sql-stage.ts';

let stage: SqlStage;
let db: Database;

beforeAll(async () => {
  stage = await openSqlStage('batches');
  db = openDatabase({ url: stage.url, role: 'countersign_worker', name: 'batches' });
});

afterEach(() => stage?.endSessions());

afterAll(async () => {
  await db?.close();
  await stage?.close();
});

function started(count: number, tenant = 'acme'): Promise<SqlRun[]> {
  return inTurn(count, () => startRun(stage.admin, stage.worker, tenant));
}

function approved(count: number, tenant = 'acme'): Promise<SqlRun[]> {
  return inTurn(count, () => approvedRun(stage.admin, stage.worker, [{}], tenant));
}

async function inTurn<T>(count: number, make: () => Promise<T>): Promise<T[]> {
  const made: T[] = [];
  while (made.length < count) {
    made.push(await make());
  }
  return made;
}

/** How many transactions wrote the events of a kind. */
async function transactions(kind: string, runs: SqlRun[]): Promise<number> {
  const { rows } = await stage.admin.pool.query<{ count: number }>(
    'select count(distinct xmin::text)::integer as count from countersign.events where kind = $1 and run_id = any ($2)',
    [kind, runs.map(({ id }) => id)],
  );
  return rows[0]?.count ?? 0;
}

/** Keeps a run's row locked until the session ends. */
async function lock(run: SqlRun): Promise<pg.Client> {
  const session = await stage.session('none');
  await session.query('begin');
  await session.query('select 1 from countersign.runs where id = $1 for update', [run.id]);
  return session;
}

describe('steps of many runs at once', () => {
  it('share transactions, and each caller gets the answer to its own call', async () => {
    const runs = [...(await approved(10, 'acme')), ...(await approved(10, 'umbrella'))];
    const intents = await Promise.all(runs.map((run) => intend(db, run, first(run))));
    expect(intents.map(({ outcome, attempt }) => [outcome, attempt])).toEqual(
      runs.map(() => ['dispatched', 1]),
    );
    expect(await transactions('action_dispatched', runs)).toBeLessThan(6);

    const late = runs[3] as SqlRun;
    const settled = await Promise.all(
      runs.map((run) =>
        settle(db, run, first(run), { attempt: run === late ? 9 : 1, outcome: 'failed', epoch: run.epoch }),
      ),
    );
    expect(settled.map(({ outcome }) => outcome)).toEqual(
      runs.map((run) => (run === late ? 'kept' : 'settled')),
    );

    const ended = await Promise.all(runs.map((run) => finish(db, run)));
    expect(ended).toEqual(runs.map((run) => run !== late));
  });

  it('claim each run for one of two callers who ask at the same moment', async () => {
    const runs = await started(20);
    const other = openDatabase({ url: stage.url, role: 'countersign_worker' });
    try {
      const asked = [...runs, ...[...runs].reverse()];
      const claims = await Promise.all(
        asked.map((run, n) =>
          claim(
            n < runs.length ? db : other,
            { ...run },
            { worker: n < runs.length ? stage.worker : stage.other },
          ),
        ),
      );
      for (const run of runs) {
        const outcomes = claims.filter((_, n) => asked[n] === run).map(({ outcome }) => outcome);
        expect(outcomes.sort()).toEqual(['claimed', 'held']);
      }
    } finally {
      await other.close();
    }
  });

  it('send one of two identical operations and hold the other, as one after the other would', async () => {
    const runs = await inTurn(6, () =>
      approvedRun(stage.admin, stage.worker, [{ operation: `refund of ${randomUUID()}` }]),
    );
    const twins = await inTurn(2, () => approvedRun(stage.admin, stage.worker, [{ operation: 'the same' }]));
    const all = [...runs.slice(0, 3), ...twins, ...runs.slice(3)];
    const intents = await Promise.all(all.map((run) => intend(db, run, first(run))));
    expect(await transactions('action_dispatched', all)).toBe(1);
    const outcomes = new Map(all.map((run, n) => [run, intents[n]?.outcome]));
    expect(runs.map((run) => outcomes.get(run))).toEqual(runs.map(() => 'dispatched'));
    expect(twins.map((run) => outcomes.get(run)).sort()).toEqual(['dispatched', 'held']);
    const held = twins.find((run) => outcomes.get(run) === 'held') as SqlRun;
    const sent = twins.find((run) => run !== held) as SqlRun;
    const { rows } = await stage.admin.pool.query('select held_by from countersign.actions where id = $1', [
      first(held).id,
    ]);
    expect(rows).toEqual([{ held_by: first(sent).id }]);
  });

  it('of one run are taken one after the other: the second sees what the first did', async () => {
    const [run] = (await started(1)) as [SqlRun];
    const others = await started(5);
    const claims = await Promise.all(
      [run, ...others, run].map((each) => claim(db, each === run ? { ...run } : each)),
    );
    expect(claims.map(({ outcome }) => outcome)).toEqual([...others.map(() => 'claimed'), 'claimed', 'held']);

    const pair = await approvedRun(stage.admin, stage.worker, [{}, {}]);
    const intents = await Promise.all(pair.actions.map((action) => intend(db, pair, action)));
    expect(intents.map(({ outcome }) => outcome)).toEqual(['dispatched', 'dispatched']);
    expect(await chainFaults(stage.admin)).toEqual([]);
  });

  it('see nothing of another tenant, whose run they name in the same statement', async () => {
    const [mine, theirs] = [...(await started(6)), ...(await started(6, 'umbrella'))].reduce<
      [SqlRun[], SqlRun[]]
    >(([a, b], run) => (run.tenant === 'acme' ? [[...a, run], b] : [a, [...b, run]]), [[], []]);
    const claims = await Promise.all([
      ...mine.map((run) => claim(db, run)),
      ...theirs.map((run) => claim(db, { ...run, tenant: 'acme' })),
    ]);
    expect(claims.map(({ outcome }) => outcome)).toEqual([
      ...mine.map(() => 'claimed'),
      ...theirs.map(() => 'unknown'),
    ]);
  });
});

it.each([
  'journal_responses',
  'claim_runs',
  'intend_actions',
  'settle_actions',
  'pause_runs',
  'finish_runs',
] as const)('%s takes its runs by id, in whatever order they are named', async (name) => {
  const [low, high] = (await started(2)).sort((a, b) => (a.id < b.id ? -1 : 1)) as [SqlRun, SqlRun];
  await lock(low);
  const batch = await stage.session('countersign_worker');
  const probe = await stage.session('none');
  const ask = { tenant: 'acme', epoch: 0, action: randomUUID(), receipt: randomUUID() };
  const calls = [high, low].map(({ id }) => encodeCall({ ...ask, run: id } as unknown as StepCall));
  const answer = batch.query(statementFor(name, calls)).catch((error: unknown) => error);
  await waitsForLock(stage.admin, batch);
  const { rows } = await probe.query(
    'select 1 from countersign.runs where id = $1 for no key update skip locked',
    [high.id],
  );
  expect(rows).toHaveLength(1);
  await stage.endSessions();
  await answer;
});

describe('one call of a batch', () => {
  it('that has no JSON fails alone', async () => {
    const runs = await started(4);
    const broken = runs[2] as SqlRun;
    const claims = await Promise.allSettled(
      runs.map((run) => claim(db, run, run === broken ? { ttlMs: 1n as unknown as number } : {})),
    );
    expect(claims.map(({ status }) => status)).toEqual(
      runs.map((run) => (run === broken ? 'rejected' : 'fulfilled')),
    );
    expect(broken.epoch).toBe(0);
  });

  it('that the server refuses fails alone', async () => {
    const runs = await started(9);
    const broken = { ...(runs[4] as SqlRun), id: 'not a uuid' };
    const claims = await Promise.allSettled(runs.map((run, n) => claim(db, n === 4 ? broken : run)));
    expect(claims.map(({ status }) => status)).toEqual(
      runs.map((_, n) => (n === 4 ? 'rejected' : 'fulfilled')),
    );
    expect((claims[4] as PromiseRejectedResult).reason).toMatchObject({ code: 'POSTGRES_REFUSED' });
    expect(runs.filter(({ epoch }) => epoch === 1)).toHaveLength(8);
  });

  it('that waits for a lock does not keep the others waiting, and is answered when it gets it', async () => {
    const runs = await started(9);
    const held = runs[4] as SqlRun;
    const session = await lock(held);
    let answered = false;
    const slow = runs.map((run) => claim(db, run));
    void slow[4]?.then(() => {
      answered = true;
    });
    await Promise.all(slow.filter((_, n) => n !== 4));
    expect(answered).toBe(false);
    await session.query('rollback');
    expect((await slow[4])?.outcome).toBe('claimed');
    expect(runs.map(({ epoch }) => epoch)).toEqual(runs.map(() => 1));
  });

  it('that came first and waits for a lock lets those behind it go on', async () => {
    const runs = await started(5);
    const session = await lock(runs[0] as SqlRun);
    const [stuck] = runs.slice(0, 1).map((run) => claim(db, run));
    await sleep(20);
    const others = runs.slice(1).map((run) => claim(db, run));
    expect((await Promise.all(others)).map(({ outcome }) => outcome)).toEqual(others.map(() => 'claimed'));
    await session.query('rollback');
    expect((await stuck)?.outcome).toBe('claimed');
  });
});

it('a batch whose connection ends gives none of its calls an answer', async () => {
  for (let ended = false; !ended; ) {
    const runs = [...(await started(5)), ...(await started(4, 'umbrella'))];
    const session = await lock(runs[3] as SqlRun);
    const claims = runs.map((run) => claim(db, run).catch((error: unknown) => error));
    const signalled = await endBatch();
    await session.query('rollback');
    const lost = await Promise.all(claims);
    // A batch that gave up waiting just before the signal has been made call by call.
    ended = signalled && lost.every((outcome) => outcome instanceof Error);
    if (ended) {
      expect(lost.map((error) => (error as { code?: string }).code)).toEqual(
        lost.map(() => 'POSTGRES_UNAVAILABLE'),
      );
      expect(await transactions('run_claimed', runs)).toBe(0);
    }
  }
}, 30_000);

/** Ends the connection that a batch waits on; false when the batch gave up waiting first. */
async function endBatch(): Promise<boolean> {
  for (let tries = 0; tries < 50; tries++) {
    const { rowCount } = await stage.admin.pool.query(`
      select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'batches' and query like '%union all%' and wait_event_type = 'Lock'`);
    if (rowCount === 1) {
      return true;
    }
  }
  return false;
}

it('a run driven by calls inside a transaction is not batched', async () => {
  const [run] = (await started(1)) as [SqlRun];
  const session = await stage.session('countersign_worker');
  await session.query('begin');
  expect((await claim(session, run)).outcome).toBe('claimed');
  await session.query('rollback');
  expect(await transactions('run_claimed', [{ ...run, id: randomUUID() }, run])).toBe(0);
});
