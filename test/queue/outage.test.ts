/**
 * The queue's server is gone, flushed, too small, or full of other people's hopes (S14, S15, S16). Postgres knows, so
 * everything is where it should be within one sweep, and nothing has happened twice.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '../../src/log.ts';
import { callFunction } from '../../src/postgres/index.ts';
import { runRelay, runResumeWorker } from '../../src/processes/index.ts';
import { openResumeQueue } from '../../src/queue/index.ts';
import { announcement, buildRegistry } from '../../src/workflows/index.ts';
import { fourKinds } from '../fixtures/four-kinds.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { noPrivateRedis, type PrivateRedis, startPrivateRedis } from '../support/private-redis.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { until } from '../support/sessions.ts';

const LONG_MS = 60_000;
const SECRET = 'sk-the-prompt-holds-a-secret';

describe.skipIf(noPrivateRedis)('Redis', () => {
  let provider: Provider;
  let redis: PrivateRedis;
  let fleet: Fleet;

  beforeAll(async () => {
    provider = await startProvider();
    await provider.client.setMode('pay-lookup', { dedupe: false });
    return () => provider.stop();
  });

  beforeEach(async () => {
    redis = await startPrivateRedis();
    fleet = await createFleet(fourKinds({ providerUrl: provider.url }), {
      name: 'outage',
      backend: 'redis',
      redisUrl: redis.url(),
    });
  });

  afterEach(async () => {
    await fleet.close();
    await redis.close();
    await provider.client.reset();
  });

  it('S14: unreachable: a decision is stored at once, the relay keeps cycling, and the run resumes afterwards', async () => {
    await fleet.relay();
    await fleet.reconciler();
    await fleet.worker({ ttlMs: 2_000 });
    const runId = await fleet.start({ workflow: 'pay-lookup', input: 'acme 1' });
    await fleet.until(runId, 'awaiting_approval', LONG_MS);
    await redis.stop();

    const asked = performance.now();
    expect(await fleet.decideAll(runId, 'approve')).toBe(1);
    expect(performance.now() - asked).toBeLessThan(2_000);
    // A second run is started meanwhile: one stuck publish blocks neither the loop nor the next row.
    const another = await fleet.start({ workflow: 'pay-lookup', input: 'beta 1' });
    const [before] = await unsent();
    await until(
      async () => (await unsent())[0]?.available_at !== before?.available_at,
      'the relay’s next try',
      20_000,
    );
    expect(await unsent()).toMatchObject([
      { failures: 0, dead_at: null },
      { failures: 0, dead_at: null },
    ]);
    expect(await effects('acme')).toBe(0);

    await redis.start();
    await Promise.all([
      fleet.until(runId, 'completed', LONG_MS),
      fleet.until(another, 'awaiting_approval', LONG_MS),
    ]);
    expect(await effects('acme')).toBe(1);
    expect(await unsent()).toEqual([]);
  }, 120_000);

  it('unreachable: a publish is refused within its deadline, and what settles late is the same job', async () => {
    const queue = openResumeQueue({ redisUrl: redis.url(), postgresUrl: '', onError: () => undefined });
    await queue.depth();
    await redis.stop();
    const [id, job] = [randomUUID(), { tenant: 'acme', runId: randomUUID(), wake: 1 }];
    const asked = performance.now();
    await expect(queue.publish([{ id, job }])).rejects.toThrow();
    expect(performance.now() - asked).toBeLessThan(7_000);
    await redis.start();
    await until(
      async () =>
        await queue.publish([{ id, job }]).then(
          () => true,
          () => false,
        ),
      'a publish to succeed',
      20_000,
    );
    await sleep(500);
    expect(await queue.depth()).toBe(1);
    await queue.close();
  }, 60_000);

  it('unreachable: every process still stops in bounded time, and hands its runs back', async () => {
    const relay = await fleet.relay();
    const worker = await fleet.worker();
    const gate = 'slow-answer';
    await provider.client.holdGate(gate);
    await provider.client.fault({ fault: { type: 'wait_for_gate', gate, when: 'after_commit' } });
    const runId = await fleet.start({ workflow: 'pay-lookup', input: 'acme 1' });
    await fleet.until(runId, 'awaiting_approval', LONG_MS);
    await fleet.decideAll(runId, 'approve');
    await until(async () => (await effects('acme')) === 1, 'the provider to commit');
    await fleet.start({ workflow: 'pay-lookup', input: 'beta 1' });
    await redis.stop();
    const asked = performance.now();
    await Promise.all([relay.stop(), worker.stop()]);
    expect(performance.now() - asked).toBeLessThan(20_000);
    const [run] = await fleet.rows<{ status: string }>('select status from countersign.runs where id = $1', [
      runId,
    ]);
    expect(run?.status).not.toBe('running');
    await provider.client.openGate(gate);
    await redis.start();
  }, 120_000);

  it('flushed again and again under runs in every stage: all complete, each effect once', async () => {
    await fleet.relay();
    await fleet.reconciler({ patienceMs: 300 });
    const workers = [await fleet.worker({ ttlMs: 1_000 }), await fleet.worker({ ttlMs: 1_000 })];
    const client = redis.client();
    const payees = Array.from({ length: 12 }, (_, index) => `flushed-${index}`);
    const runIds: string[] = [];
    for (const payee of payees) {
      runIds.push(await fleet.start({ workflow: 'pay-lookup', input: `${payee} 1` }));
      if (runIds.length % 3 === 0) await client.flushall();
    }
    await Promise.all(
      runIds.map(async (runId, index) => {
        await fleet.until(runId, 'awaiting_approval', LONG_MS);
        await fleet.decideAll(runId, 'approve');
        if (index % 4 === 0) await client.flushall();
      }),
    );
    await client.flushall();
    await Promise.all(runIds.map((runId) => fleet.until(runId, 'completed', LONG_MS)));
    for (const payee of payees) {
      expect(await effects(payee)).toBe(1);
    }
    expect(workers.every(({ counts }) => counts.failed === 0 && counts.released === 0)).toBe(true);
    expect(await fleet.rows('select 1 from countersign.dead_letters')).toEqual([]);
  }, 120_000);

  it('S15: with an eviction policy no process starts, and the error names the policy', async () => {
    const evicting = await startPrivateRedis(['--maxmemory-policy', 'allkeys-lru']);
    try {
      const common = { databaseUrl: fleet.url, redisUrl: evicting.url(), log: createLog('s15', 'silent') };
      await expect(
        runResumeWorker({ ...common, keys: fleet.keys, workflows: [], allowForgetful: true }),
      ).rejects.toMatchObject({ code: 'REDIS_MISCONFIGURED', details: { policy: 'allkeys-lru' } });
      await expect(runRelay(common)).rejects.toMatchObject({ code: 'REDIS_MISCONFIGURED' });
    } finally {
      await evicting.close();
    }
  });

  it('S15: a job of which only the id is left is refused and counted, and its run resumes from Postgres', async () => {
    await fleet.reconciler({ patienceMs: 500 });
    const client = redis.client();
    await announceOnly();
    const relay = await fleet.relay();
    const runId = await fleet.start({ workflow: 'pay-lookup', input: 'acme 1' });
    await until(async () => (await client.keys('*:countersign-resume:*-*-*')).length > 0, 'the job');
    const half = await client.keys('*:countersign-resume:*-*-*');
    await client.del(...half);
    const worker = await fleet.worker({ ttlMs: 1_000 });
    await fleet.until(runId, 'awaiting_approval', LONG_MS);
    expect(worker.counts.malformed).toBeGreaterThan(0);
    expect(worker.counts.failed).toBe(0);
    await fleet.decideAll(runId, 'approve');
    await fleet.until(runId, 'completed', LONG_MS);
    expect(await effects('acme')).toBe(1);
    await relay.stop();
  }, 120_000);

  it('full: the relay waits it out, and no announcement dies of it', async () => {
    await announceOnly();
    const client = redis.client();
    await client.config('SET', 'maxmemory', '1');
    await fleet.relay();
    const runId = await fleet.start({ workflow: 'pay-lookup', input: 'acme 1' });
    const [before] = await unsent();
    await until(
      async () => (await unsent())[0]?.available_at !== before?.available_at,
      'the relay’s next try',
      20_000,
    );
    await sleep(3_000);
    expect(await unsent()).toMatchObject([{ failures: 0, dead_at: null }]);
    await client.config('SET', 'maxmemory', '0');
    await fleet.worker();
    await fleet.until(runId, 'awaiting_approval', LONG_MS);
  }, 120_000);

  it('S16: 50 runs with a megabyte of state leave only small jobs of ids in Redis, and no word of theirs', async () => {
    await announceOnly();
    await fleet.relay();
    await fleet.reconciler();
    const client = redis.client();
    const heard: string[] = [];
    const monitor = await client.monitor();
    monitor.on('monitor', (_time: string, args: string[]) => {
      // The scripts that BullMQ loads are long, and its own.
      if (!/^(eval|script)$/i.test(args[0] ?? '')) heard.push(args.join(' '));
      else heard.push(args.slice(2).join(' '));
    });
    const emptyBytes = await usedBytes();
    const ballast = `${SECRET} `.repeat(32_000).slice(0, 900_000);
    const runIds = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        fleet.start({ workflow: 'pay-lookup', input: `bulky-${index} 1 ${ballast}` }),
      ),
    );
    const queue = openResumeQueue({ redisUrl: redis.url(), postgresUrl: '', onError: () => undefined });
    // More, where the sweep finds that nobody has taken one for a while.
    await until(async () => (await queue.depth()) >= 50, '50 jobs', 30_000);
    for (const key of await client.keys('*:countersign-resume:*-*-*')) {
      const job = await client.hgetall(key);
      expect(JSON.parse(job.data ?? '')).toEqual({ tenant: 'acme', runId: expect.any(String), wake: 1 });
      expect(JSON.stringify(job).length).toBeLessThan(1_024);
    }
    await queue.close();
    await fleet.worker({ concurrency: 4 });
    await Promise.all(
      runIds.map(async (runId) => {
        await fleet.until(runId, 'awaiting_approval', LONG_MS);
        await fleet.decideAll(runId, 'approve');
        await fleet.until(runId, 'completed', LONG_MS);
      }),
    );
    monitor.disconnect();
    const [state] = await fleet.rows<{ bytes: number }>(
      'select min(length(sealed))::integer as bytes from countersign.checkpoints where number = 1',
    );
    expect(state?.bytes).toBeGreaterThan(900_000);
    expect((await usedBytes()) - emptyBytes).toBeLessThan(1_000_000);
    expect(Math.max(...heard.map((command) => command.length))).toBeLessThan(20_000);
    expect(heard.filter((command) => command.includes(SECRET) || command.includes('bulky-'))).toEqual([]);
    expect((await provider.client.counts()).commits).toBe(50);
  }, 180_000);

  /** As if a capable worker were alive, so that runs become ready and are announced while nobody takes jobs. */
  async function announceOnly(): Promise<void> {
    const registry = await buildRegistry(fourKinds({ providerUrl: provider.url }));
    const { workflows, stateSchemas, tools } = announcement(registry);
    const ask = [randomUUID(), 'resume', 'announced', workflows, stateSchemas, tools, 3_600_000];
    await callFunction(fleet.admin, 'announce_worker', ask);
  }

  async function usedBytes(): Promise<number> {
    return Number(/used_memory:(\d+)/.exec(await redis.client().info('memory'))?.[1]);
  }

  const unsent = () =>
    fleet.rows<{ failures: number; dead_at: Date | null; available_at: string }>(
      'select failures, dead_at, available_at::text from countersign.outbox where sent_at is null order by position',
    );

  const effects = async (payee: string) =>
    (await provider.client.findBy('pay-lookup', 'to', payee)).effects.length;
});
