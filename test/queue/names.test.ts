import { afterEach, describe, expect, it } from 'vitest';
import { runApi } from '../../src/http/index.ts';
import { createLog } from '../../src/log.ts';
import { runLoop } from '../../src/processes/index.ts';
import { openRedis, openResumeQueue, redisLeases } from '../../src/queue/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { cli } from '../cli/run-cli.ts';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';

let fleets: Fleet[] = [];

afterEach(async () => {
  await Promise.all(fleets.map((fleet) => fleet.close()));
  fleets = [];
});

async function fleet(name: string): Promise<Fleet> {
  const made = await createFleet(
    [
      crew(
        () => named('speaker'),
        () => 'done',
      ),
    ],
    { name, backend: 'redis' },
  );
  fleets.push(made);
  return made;
}

describe('two fleets on one Redis database', () => {
  it('with names of their own do not see each other’s jobs', async () => {
    const [one, two] = [await fleet('one'), await fleet('two')];
    const workers = await Promise.all([one.worker({ queue: 'one' }), two.worker({ queue: 'two' })]);
    await Promise.all([one.relay({ queue: 'one' }), two.relay({ queue: 'two' })]);
    const start = (made: Fleet) => made.start({ workflow: 'agents' });
    const runs = await Promise.all(
      fleets.flatMap((made) => Array.from({ length: 10 }, async () => [made, await start(made)] as const)),
    );
    await Promise.all(runs.map(([made, run]) => made.until(run, 'completed')));
    expect(workers.map(({ counts }) => [counts.completed, counts.unknown])).toEqual([
      [10, 0],
      [10, 0],
    ]);
  });

  it('with one name take each other’s jobs, and find nothing under them', async () => {
    const [one, two] = [await fleet('one'), await fleet('two')];
    const worker = await two.worker({ queue: 'shared' });
    await one.relay({ queue: 'shared' });
    // Announced as soon as a worker of its own is there; taken by the other's.
    const own = await one.worker({ queue: 'elsewhere' });
    await one.start({ workflow: 'agents' });
    await expect.poll(() => worker.counts.unknown).toBe(1);
    expect(own.counts.claimed).toBe(0);
  });

  it('get each what `countersign chaos` publishes for them', async () => {
    const made = await fleet('chaos');
    const worker = await made.worker({ queue: 'mine' });
    await made.relay({ queue: 'mine' });
    await made.until(await made.start({ workflow: 'agents' }), 'completed');
    const said = await cli(['chaos', 'duplicates', '--rate', '1', '--for', '1s', '--json'], {
      DATABASE_URL: made.url,
      REDIS_URL: made.redisUrl ?? '',
      COUNTERSIGN_QUEUE: 'mine',
    });
    expect(said.code, said.stderr).toBe(0);
    expect(said.json()).toMatchObject({ done: { duplicatedRuns: 1 }, violations: [] });
    await expect.poll(() => worker.counts.stale).toBeGreaterThan(0);
  });

  it('have leases of their own for one and the same run', async () => {
    const { redisUrl } = await fleet('leases');
    const redis = openRedis(redisUrl ?? '', () => undefined);
    try {
      await expect.poll(() => redis.status).toBe('ready');
      const [one, two] = [redisLeases(redis, 'one'), redisLeases(redis, 'two')];
      expect(await one.acquire('acme', 'run', 'a', 2_000)).toBe('acquired');
      expect(await two.acquire('acme', 'run', 'b', 2_000)).toBe('acquired');
      expect(await one.acquire('acme', 'run', 'c', 2_000)).toBe('busy');
    } finally {
      redis.disconnect();
    }
  });

  it('count only their own jobs', async () => {
    const { redisUrl, url } = await fleet('depth');
    const open = (name: string) =>
      openResumeQueue({ redisUrl, postgresUrl: url, name, onError: () => undefined });
    const [one, two] = [open('depth-one'), open('depth-two')];
    try {
      const runId = '00000000-0000-4000-8000-000000000000';
      await one.publish([{ id: 'row', job: { tenant: 'acme', runId, wake: 1 } }]);
      expect([await one.depth(), await two.depth()]).toEqual([1, 0]);
    } finally {
      await Promise.all([one.close(), two.close()]);
    }
  });
});

describe('a process that is stopped twice', () => {
  it('stops once, and tells both askers when', async () => {
    const made = await fleet('stops');
    const log = createLog('stops', 'silent');
    const api = await runApi({
      databaseUrl: made.url,
      keys: KeyRing.parse({ review: made.keySpec.review }),
      tokens: [{ sha256: 'a'.repeat(64), tenant: 'acme', subject: 'alice', roles: ['reviewer'] }],
      host: '127.0.0.1',
      port: 0,
      log,
    });
    const loop = runLoop({ name: 'idle', log, idleMs: 10_000, pass: async () => 0 });
    const all = [await made.worker(), await made.relay(), await made.reconciler(), api, loop];
    for (const running of all) {
      const first = running.stop();
      expect(running.stop()).toBe(first);
      await first;
      await running.stop();
    }
  });
});
