/**
 * Announcements are committed with the state that caused them and published after (S18): none below a cursor is
 * forgotten, none of a run overtakes another, and one that cannot be published stops nobody else.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CountersignError } from '../../src/errors.ts';
import { createLog } from '../../src/log.ts';
import { relayOnce } from '../../src/outbox/index.ts';
import { callFunction, type Database, openDatabase } from '../../src/postgres/index.ts';
import type { ResumeJob, ResumeQueue } from '../../src/queue/index.ts';
import { start } from '../../src/runs/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { facts } from '../support/run-facts.ts';
import { openSession } from '../support/sessions.ts';
import { announceWorker, SQL_WORKFLOW, type SqlRun, startRun, sweep } from '../support/sql-run.ts';

const log = createLog('outbox', process.env.TEST_LOG ?? 'silent');
const keys = KeyRing.parse(KeyRing.generate());
const [workflow = '', version = ''] = SQL_WORKFLOW.split('@');

let database: TestDatabase;
let admin: Database;
let db: Database;
let worker: string;

beforeAll(async () => {
  database = await createTestDatabase('outbox');
  admin = openDatabase({ url: database.url, role: null, max: 6 });
  db = openDatabase({ url: database.url, role: 'countersign_relay', max: 4 });
  worker = await announceWorker(admin);
});

beforeEach(async () => {
  await admin.pool.query(
    'update countersign.outbox set sent_at = clock_timestamp() where sent_at is null and dead_at is null',
  );
});

afterAll(async () => {
  await db.close();
  await admin.close();
  await database.drop();
});

describe('S18: committed out of order', () => {
  it('a row below the last published one is published when its transaction commits at last', async () => {
    const queue = recorder();
    const [late, early] = [
      await openSession(database.url, 'countersign_api'),
      await openSession(database.url, 'countersign_api'),
    ];
    await late.query('begin');
    // Also the tenant's very first run, which holds up no other start of that tenant while it is uncommitted.
    const first = await start(late, keys, {
      tenant: 'new',
      workflow,
      version,
      input: 'a',
      requestedBy: 'x',
    });
    const second = await start(early, keys, {
      tenant: 'new',
      workflow,
      version,
      input: 'b',
      requestedBy: 'x',
    });
    await relayOnce(db, queue, log, { limit: 10 });
    expect(queue.published.map(({ job }) => job.runId)).toEqual([second.runId]);
    await late.query('commit');
    await relayOnce(db, queue, log, { limit: 10 });
    expect(queue.published.map(({ job }) => job.runId)).toEqual([second.runId, first.runId]);
    await Promise.all([late.end(), early.end()]);
  });

  it('of 20 writers with delays and rollbacks every committed row goes out, in order per run, with two flaky relays', async () => {
    const runs = await Promise.all(Array.from({ length: 15 }, () => startRun(admin, worker)));
    await admin.pool.query('update countersign.outbox set sent_at = clock_timestamp() where sent_at is null');
    const queue = recorder({ failing: 0.15 });
    let writing = true;
    const relays = [1, 2].map(async () => {
      for (let idle = 0; writing || idle < 5; ) {
        const { sent } = await relayOnce(db, queue, log, { limit: 7 });
        // What an outage has put off is due again at once, as if the second had passed.
        await admin.pool.query(
          'update countersign.outbox set available_at = clock_timestamp() where sent_at is null',
        );
        idle = sent === 0 ? idle + 1 : 0;
        await sleep(5);
      }
    });
    const sessions = await Promise.all(Array.from({ length: 20 }, () => openSession(database.url, 'none')));
    const committed = (await Promise.all(sessions.map((session) => write(session, runs)))).flat();
    writing = false;
    await Promise.all(relays);
    await Promise.all(sessions.map((session) => session.end()));

    const ids = new Set(queue.published.map(({ id }) => id));
    expect(committed.filter((id) => !ids.has(id))).toEqual([]);
    const { rows: left } = await admin.pool.query('select 1 from countersign.outbox where sent_at is null');
    expect(left).toEqual([]);
    for (const run of runs) {
      const { rows } = await admin.pool.query<{ id: string }>(
        'select id from countersign.outbox where run_id = $1 order by position offset 1',
        [run.id],
      );
      const firsts = [
        ...new Set(queue.published.filter(({ job }) => job.runId === run.id).map(({ id }) => id)),
      ];
      expect(firsts).toEqual(rows.map(({ id }) => id));
    }
  }, 60_000);

  /** Announces at random, holding the run's lock as every writer of the protocol does; returns what was committed. */
  async function write(session: pg.Client, runs: SqlRun[]): Promise<string[]> {
    const committed: string[] = [];
    for (let count = 0; count < 20; count += 1) {
      const run = runs[Math.floor(Math.random() * runs.length)];
      await session.query('begin');
      await session.query('select 1 from countersign.runs where id = $1 for no key update', [run?.id]);
      const { rows } = await session.query<{ id: string }>(
        "insert into countersign.outbox (tenant, run_id, wake) values ('acme', $1, 1) returning id",
        [run?.id],
      );
      await sleep(Math.random() * 15);
      const kept = Math.random() < 0.7;
      await session.query(kept ? 'commit' : 'rollback');
      if (kept) committed.push(...rows.map(({ id }) => id));
    }
    return committed;
  }
});

describe('a row that cannot be published', () => {
  it('is dead after its budget, holds back its own run and nobody else, and is not announced again by the sweep', async () => {
    const [bad, good] = [await startRun(admin, worker), await startRun(admin, worker)];
    const queue = recorder({ refusing: bad.id });
    for (let pass = 0; pass < 6; pass += 1) {
      await relayOnce(db, queue, log, { limit: 10 });
      await admin.pool.query(
        'update countersign.outbox set available_at = clock_timestamp() where sent_at is null',
      );
    }
    expect(queue.published.map(({ job }) => job.runId)).toEqual([good.id]);
    const { rows } = await admin.pool.query(
      'select failures, dead_at is not null as dead, dead_reason from countersign.outbox where run_id = $1',
      [bad.id],
    );
    expect(rows).toEqual([{ failures: 5, dead: true, dead_reason: 'PUBLISH_REFUSED' }]);
    expect(await sweep(admin, bad)).toBe('dead_outbox');
    await admin.pool.query("insert into countersign.outbox (tenant, run_id, wake) values ('acme', $1, 2)", [
      bad.id,
    ]);
    expect((await relayOnce(db, queue, log, { limit: 10 })).claimed).toBe(0);
    expect((await facts(admin, bad)).run.status).toBe('ready');
  });

  it('counts no failure for an outage, however long', async () => {
    const run = await startRun(admin, worker);
    const queue = recorder({ failing: 1 });
    for (let pass = 0; pass < 8; pass += 1) {
      expect(await relayOnce(db, queue, log, { limit: 10 })).toMatchObject({ claimed: 1, failed: 1 });
      await admin.pool.query(
        'update countersign.outbox set available_at = clock_timestamp() where sent_at is null',
      );
    }
    const { rows } = await admin.pool.query(
      'select failures, dead_at from countersign.outbox where run_id = $1',
      [run.id],
    );
    expect(rows).toEqual([{ failures: 0, dead_at: null }]);
  });
});

describe('a relay that dies', () => {
  it('lets its claim lapse, and the next one publishes; its own late mark then changes nothing', async () => {
    const run = await startRun(admin, worker);
    const dead = '22222222-2222-4222-8222-222222222222';
    const claimed = await callFunction<{ id: string }>(db, 'claim_outbox', [10, 60, dead]);
    const queue = recorder();
    expect((await relayOnce(db, queue, log, { limit: 10 })).claimed).toBe(0);
    await sleep(80);
    expect((await relayOnce(db, queue, log, { limit: 10 })).sent).toBe(1);
    expect(queue.published.map(({ job }) => job.runId)).toEqual([run.id]);
    const [mark] = await callFunction<{ mark_outbox_sent: number }>(db, 'mark_outbox_sent', [
      claimed.map(({ id }) => id),
      dead,
    ]);
    expect(mark?.mark_outbox_sent).toBe(0);
  });
});

/** A queue that remembers what it was given; it fails as an outage would, or refuses one run's jobs. */
function recorder(
  options: { failing?: number; refusing?: string } = {},
): ResumeQueue & { published: { id: string; job: ResumeJob }[] } {
  const published: { id: string; job: ResumeJob }[] = [];
  return {
    backend: 'redis',
    published,
    async publish(rows) {
      await sleep(Math.random() * 5);
      if (Math.random() < (options.failing ?? 0)) {
        throw new CountersignError('REDIS_UNAVAILABLE', 'gone');
      }
      if (rows.some(({ job }) => job.runId === options.refusing)) {
        throw new Error('this job is refused');
      }
      published.push(...rows);
    },
    consume: () => {
      throw new Error('nobody consumes here');
    },
    depth: async () => 0,
    close: async () => undefined,
  };
}
