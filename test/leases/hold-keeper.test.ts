/** The heartbeat of one worker, against a real Postgres: what it renews, what it gives up, and what may hold it up. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { HoldKeeper } from '../../src/leases/index.ts';
import { createLog } from '../../src/log.ts';
import { type Database, openDatabase } from '../../src/postgres/index.ts';
import { noLeases } from '../../src/queue/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { facts } from '../support/run-facts.ts';
import { openSession, until } from '../support/sessions.ts';
import { announceWorker, claim, type SqlRun, startRun } from '../support/sql-run.ts';

const TTL_MS = 600;
const log = createLog('holds', process.env.TEST_LOG ?? 'silent');

let database: TestDatabase;
let admin: Database;
let db: Database;
const keepers: HoldKeeper[] = [];

beforeAll(async () => {
  database = await createTestDatabase('holds');
  admin = openDatabase({ url: database.url, role: null, max: 4 });
  db = openDatabase({ url: database.url, role: 'countersign_worker', max: 6, name: 'the heart' });
});

afterEach(async () => {
  await Promise.all(keepers.splice(0).map((keeper) => keeper.stop()));
});

afterAll(async () => {
  await db.close();
  await admin.close();
  await database.drop();
});

/** A worker with its heart beating, and a way to claim runs for it. */
async function aWorker() {
  const workerId = await announceWorker(admin);
  const keeper = new HoldKeeper({ db, leases: noLeases, log, workerId, ttlMs: TTL_MS });
  keepers.push(keeper);
  return {
    workerId,
    keeper,
    async hold(run: SqlRun) {
      const asked = performance.now();
      await claim(admin, run, { worker: workerId, ttlMs: TTL_MS });
      return keeper.add({ tenant: run.tenant, runId: run.id, epoch: run.epoch, leaseHolder: 'x' }, asked);
    },
  };
}

const isHeld = async (run: SqlRun) => ((await facts(admin, run)).run.held_until?.getTime() ?? 0) > Date.now();

it('a heartbeat keeps every run of a living worker held', async () => {
  const { workerId, hold } = await aWorker();
  const runs = [await startRun(admin, workerId), await startRun(admin, workerId, 'another tenant')];
  const holds = await Promise.all(runs.map(hold));
  await sleep(2 * TTL_MS);
  expect(await Promise.all(runs.map(isHeld))).toEqual([true, true]);
  expect(holds.map(({ lost }) => lost.signal.aborted)).toEqual([false, false]);
});

it('one run whose row is busy neither lets the others run out nor counts as lost', async () => {
  const { workerId, keeper, hold } = await aWorker();
  const [busy, idle] = [await startRun(admin, workerId), await startRun(admin, workerId)];
  const [busyHold, idleHold] = [await hold(busy), await hold(idle)];
  const session = await openSession(database.url, 'none');
  await session.query('begin');
  await session.query('select 1 from countersign.runs where id = $1 for no key update', [busy.id]);
  await sleep(2 * TTL_MS);
  expect(await isHeld(idle)).toBe(true);
  expect(keeper.isTrusted(idleHold)).toBe(true);
  expect(keeper.isTrusted(busyHold)).toBe(false);
  expect(busyHold.lost.signal.aborted).toBe(false);
  await session.query('commit');
  await session.end();
  await until(() => keeper.isTrusted(busyHold), 'the hold to be renewed');
  expect(await isHeld(busy)).toBe(true);
});

it('a run that another worker has taken over is given up, and only that', async () => {
  const { workerId, hold } = await aWorker();
  const [taken, kept] = [await startRun(admin, workerId), await startRun(admin, workerId)];
  const [takenHold, keptHold] = [await hold(taken), await hold(kept)];
  await admin.pool.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 s' where id = $1",
    [taken.id],
  );
  const other = await announceWorker(admin);
  await claim(admin, { ...taken }, { worker: other });
  await until(() => takenHold.lost.signal.aborted, 'the loss to be noticed');
  expect(keptHold.lost.signal.aborted).toBe(false);
  expect((await facts(admin, taken)).run.holder).toBe(other);
});

it('a process that has claimed one run twice trusts its latest claim alone', async () => {
  const { workerId, keeper, hold } = await aWorker();
  const run = await startRun(admin, workerId);
  const before = await hold(run);
  await admin.pool.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 s' where id = $1",
    [run.id],
  );
  const after = await hold(run);
  expect(after.epoch).toBe(before.epoch + 1);
  await until(() => before.lost.signal.aborted, 'the older claim to be given up');
  await sleep(TTL_MS);
  expect(keeper.isTrusted(before)).toBe(false);
  expect(keeper.isTrusted(after)).toBe(true);
});

it('a hold is trusted for less than its ttl when no heartbeat is answered, and beats do not pile up', async () => {
  const { workerId, keeper, hold } = await aWorker();
  const run = await startRun(admin, workerId);
  const held = await hold(run);
  const session = await openSession(database.url, 'none');
  await session.query('begin');
  await session.query('select 1 from countersign.workers where id = $1 for update', [workerId]);
  const from = performance.now();
  await until(() => !keeper.isTrusted(held), 'trust to end');
  expect(performance.now() - from).toBeLessThan(TTL_MS);
  await sleep(3 * TTL_MS);
  const { rows } = await admin.pool.query(
    "select 1 from pg_stat_activity where application_name = 'the heart' and state = 'active' and query like '%renew_holds%'",
  );
  // One for each ttl: a beat that lasts longer may have a dead connection.
  expect(rows.length).toBeLessThanOrEqual(4);
  await session.query('commit');
  await session.end();
});
