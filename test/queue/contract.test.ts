/**
 * What the protocol asks of a queue, of both backends: it may repeat and it may lose, but it never calls half a job a
 * success, never gives a job up in silence, and always answers in bounded time.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  type ConsumeOptions,
  openResumeQueue,
  type ResumeJob,
  type ResumeQueue,
  type Verdict,
} from '../../src/queue/resume-queue.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { noPrivateRedis, type PrivateRedis, startPrivateRedis } from '../support/private-redis.ts';
import { until } from '../support/sessions.ts';
import { startWorkerProcess } from '../support/worker-process.ts';

const backends = noPrivateRedis ? (['embedded'] as const) : (['redis', 'embedded'] as const);

describe.each(backends)('the queue on %s', (backend) => {
  let database: TestDatabase;
  let redis: PrivateRedis | null = null;
  let redisDatabase = 0;
  let redisUrl: string | null;
  let queue: ResumeQueue;
  const closing: (() => Promise<void>)[] = [];
  const errors: Error[] = [];
  const onError = (error: Error) => void errors.push(error);

  beforeAll(async () => {
    redis = backend === 'redis' ? await startPrivateRedis() : null;
  });

  beforeEach(async () => {
    database = await createTestDatabase(`queue ${backend}`);
    redisDatabase += 1;
    redisUrl = redis?.url(redisDatabase) ?? null;
    queue = openResumeQueue({ redisUrl, postgresUrl: database.url, onError });
  });

  afterEach(async () => {
    await Promise.all(closing.splice(0).map((close) => close()));
    await queue.close();
    await database.drop();
  });

  afterAll(async () => {
    await redis?.close();
  });

  it('delivers exactly what was published: three ids and nothing else', async () => {
    const job = aJob();
    const seen = consume();
    await queue.publish([{ id: randomUUID(), job }]);
    await until(() => seen.jobs.length === 1, 'the delivery');
    expect(seen.jobs).toEqual([job]);
    expect(JSON.stringify(job).length).toBeLessThan(1_024);
  });

  it('keeps one job per id while it waits, also when ten publish it at once', async () => {
    const [id, job] = [randomUUID(), aJob()];
    await Promise.all(Array.from({ length: 10 }, () => queue.publish([{ id, job }])));
    await queue.publish([
      { id, job },
      { id: randomUUID(), job: aJob() },
    ]);
    expect(await queue.depth()).toBe(2);
    const seen = consume();
    await until(() => seen.jobs.length === 2, 'both deliveries');
    await sleep(200);
    expect(seen.jobs).toHaveLength(2);
    expect(await queue.depth()).toBe(0);
  });

  it('forgets a job that is done, so that its id may come again', async () => {
    const [id, job] = [randomUUID(), aJob()];
    const seen = consume();
    await queue.publish([{ id, job }]);
    await until(async () => seen.jobs.length === 1 && (await queue.depth()) === 0, 'the first delivery');
    await queue.publish([{ id, job }]);
    await until(() => seen.jobs.length === 2, 'the second delivery');
  });

  it('brings a delayed job back after its delay, as often as asked, and counts no failure', async () => {
    const at: number[] = [];
    const seen = consume({}, async () => {
      at.push(performance.now());
      return at.length < 4 ? { kind: 'delay', ms: 200 } : { kind: 'done' };
    });
    await queue.publish([{ id: randomUUID(), job: aJob() }]);
    await until(async () => at.length === 4 && (await queue.depth()) === 0, 'four deliveries');
    const gaps = at.slice(1).map((time, index) => time - (at[index] ?? 0));
    expect(Math.min(...gaps)).toBeGreaterThan(180);
    expect(seen.malformed).toEqual([]);
  });

  it.each([
    ['empty, as after an eviction', {}],
    ['of another shape', { tenant: 'a', runId: 'not a uuid', wake: 1 }],
    ['with a field too many', { ...aJob(), state: 'secret' }],
    ['with a wake that is no whole number', { ...aJob(), wake: 1.5 }],
  ])('reports a job that is %s, hands it to nobody, and goes on', async (_what, data) => {
    const seen = consume();
    const [bad, good] = [randomUUID(), aJob()];
    await queue.publish([
      { id: bad, job: data as ResumeJob },
      { id: randomUUID(), job: good },
    ]);
    await until(() => seen.jobs.length === 1 && seen.malformed.length === 1, 'one delivery, one report');
    expect(seen.jobs).toEqual([good]);
    expect(seen.malformed).toEqual([bad]);
  });

  it('goes on after a handler that throws', async () => {
    let calls = 0;
    consume({}, async () => {
      calls += 1;
      if (calls === 1) throw new Error('a bug');
      return { kind: 'done' };
    });
    await queue.publish([
      { id: randomUUID(), job: aJob() },
      { id: randomUUID(), job: aJob() },
    ]);
    await until(async () => calls === 2 && (await queue.depth()) === 0, 'both deliveries');
  });

  it('delivers a killed consumer’s job to another one', async () => {
    const job = aJob();
    await queue.publish([{ id: randomUUID(), job }]);
    const victim = await startWorkerProcess({
      role: 'consumer',
      databaseUrl: database.url,
      redisUrl,
      keys: KeyRing.generate(),
      workflows: { providerUrl: '' },
      lockMs: 1_000,
      halt: { at: 'job' },
    });
    await victim.halted();
    await victim.kill();
    const seen = consume({ lockMs: 1_000 });
    await until(() => seen.jobs.length === 1, 'the redelivery', 20_000);
    expect(seen.jobs).toEqual([job]);
  }, 60_000);

  it('does not repeat a job whose consumer works longer than its lock and is alive', async () => {
    const handler = async (): Promise<Verdict> => {
      await sleep(2_500);
      return { kind: 'done' };
    };
    const [one, two] = [consume({ lockMs: 800 }, handler), consume({ lockMs: 800 }, handler)];
    await queue.publish([{ id: randomUUID(), job: aJob() }]);
    await until(async () => (await queue.depth()) === 0, 'the job to be done');
    expect(one.jobs.length + two.jobs.length).toBe(1);
  });

  it('carries a backlog of 500 with each job delivered once', async () => {
    const jobs = Array.from({ length: 500 }, aJob);
    await queue.publish(jobs.map((job) => ({ id: randomUUID(), job })));
    const all = [consume({ concurrency: 10 }), consume({ concurrency: 10 })];
    const delivered = () => all.flatMap((seen) => seen.jobs.map(({ runId }) => runId));
    await until(async () => delivered().length >= 500 && (await queue.depth()) === 0, 'the backlog', 30_000);
    expect(delivered().sort()).toEqual(jobs.map(({ runId }) => runId).sort());
  }, 40_000);

  it('closes in bounded time although a handler never returns', async () => {
    const seen = consume({}, () => new Promise<never>(() => undefined));
    await queue.publish([{ id: randomUUID(), job: aJob() }]);
    await until(() => seen.jobs.length === 1, 'the delivery');
    const started = performance.now();
    await seen.close(300);
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  it('comes up by itself when its very first connections are ended under it, and ends no process with them', async () => {
    if (redis !== null) {
      await redis.stop();
      await redis.start();
    }
    const seen = consume();
    const ended = await endConnections();
    const [id, job] = [randomUUID(), aJob()];
    const published = () =>
      queue.publish([{ id, job }]).then(
        () => true,
        () => false,
      );
    await until(published, 'a publish to succeed', 20_000);
    await until(() => seen.jobs.length > 0, 'the delivery', 20_000);
    if (backend === 'embedded') expect(ended).toBeGreaterThan(0);
  }, 60_000);

  /** For half a second, every connection to this test's database as soon as it shows. Returns how many there were. */
  async function endConnections(): Promise<number> {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    let ended = 0;
    for (const end = Date.now() + 500; Date.now() < end; await sleep(3)) {
      const { rows } = await client.query(
        'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
      );
      ended += rows.length;
    }
    await client.end();
    return ended;
  }

  it('leaves no connection behind when it is closed', async () => {
    const seen = consume();
    await queue.publish([{ id: randomUUID(), job: aJob() }]);
    await until(() => seen.jobs.length === 1, 'the delivery');
    await seen.close(2_000);
    await queue.close();
    await until(async () => (await connections()) === 0, 'the last connection to end');
  });

  /** Connections to this test's own database of the backend, apart from the one that counts. */
  async function connections(): Promise<number> {
    if (redis === null) {
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      const { rows } = await client.query<{ n: number }>(
        'select count(*)::integer as n from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
      );
      await client.end();
      return rows[0]?.n ?? 0;
    }
    const client = redis.client();
    const list = String(await client.client('LIST'));
    client.disconnect();
    return list.split('\n').filter((line) => line.includes(` db=${redisDatabase} `)).length;
  }

  function consume(
    options: Partial<ConsumeOptions> = {},
    handler: (job: ResumeJob) => Promise<Verdict> = async () => ({ kind: 'done' }),
  ) {
    const seen = {
      jobs: [] as ResumeJob[],
      malformed: [] as string[],
      close: (_ms: number) => Promise.resolve(),
    };
    const consumer = queue.consume(
      (job) => {
        seen.jobs.push(job);
        return handler(job);
      },
      { concurrency: 1, onError, onMalformed: (id) => seen.malformed.push(id), ...options },
    );
    let closed: Promise<void> | undefined;
    seen.close = (ms) => (closed ??= consumer.close(ms));
    closing.push(() => seen.close(500));
    return seen;
  }
});

function aJob(): ResumeJob {
  return { tenant: 'acme', runId: randomUUID(), wake: 1 };
}
