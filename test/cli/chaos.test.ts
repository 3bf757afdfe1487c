/** `countersign chaos` against a real dev fleet: trouble, and the verdict that must not overlook anything. */
import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { releaseClient } from '../../examples/release-service/index.ts';
import { type Dev, makeHome, startDev, terminal } from '../dev/dev-fleet.ts';
import { until } from '../dev/processes.ts';
import { createTestDatabase } from '../support/database.ts';
import { noPrivateRedis, startPrivateRedis } from '../support/private-redis.ts';
import { cli, spawnCli } from './run-cli.ts';

let home: string;
let dev: Dev;

beforeAll(async () => {
  home = await makeHome();
  dev = await startDev(home);
});
afterAll(async () => {
  dev?.child.kill('SIGINT');
  await dev?.ended;
  await rm(home, { recursive: true, force: true });
});

type Verdict = {
  done: Record<string, number | string>;
  runs: number;
  violations: { tenant: string; run: string; found: string[] }[];
};

const ours = (...args: string[]) => terminal(home).ours(...args);
/** A process of its own, so that other commands run meanwhile. */
const spawned = (...args: string[]) => spawnCli([...args, '--json'], { COUNTERSIGN_HOME: home });

/** Runs are started and approved while the trouble is made. Returns the keys of their effects. */
async function deploy(releases: readonly string[]): Promise<string[]> {
  const keys: string[] = [];
  for (const release of releases) {
    keys.push(await keyOf(await terminal(home).deployOnce(release)));
  }
  return keys;
}

async function keyOf(runId: string): Promise<string> {
  const { actions } = (await terminal(home).insist('runs', 'explain', runId)).json<{
    actions: { id: string }[];
  }>();
  return actions[0]?.id ?? '';
}

async function provider() {
  return releaseClient((await terminal(home).fleet()).providerUrl);
}

async function commitsOf(keys: readonly string[]): Promise<number[]> {
  const { byKey } = await (await provider()).counts();
  return keys.map((key) => byKey[key]?.commits ?? 0);
}

describe('chaos', () => {
  it.each([
    ['duplicates', ['--rate', '1', '--for', '4s'], 'duplicates'],
    ['kill-workers', ['--every', '1s', '--for', '4s'], 'kills'],
    ['flush-redis', [], null],
    ['drop-connections', [], 'connections'],
  ])(
    '%s, while runs are approved: one effect each, and no violation',
    async (verb, flags, counted) => {
      const [verdict, keys] = await Promise.all([
        spawned('chaos', verb, ...flags),
        deploy(['v1.0.0', 'v1.0.1', 'v1.0.2']),
      ]);
      expect(verdict.json<Verdict>()).toMatchObject({ done: { command: verb }, violations: [] });
      expect(verdict.code).toBe(0);
      const { done, runs } = verdict.json<Verdict>();
      expect(counted === null ? 1 : done[counted]).toBeGreaterThan(0);
      expect(runs).toBeGreaterThanOrEqual(verb === 'duplicates' ? 1 : 0);
      expect(await commitsOf(keys)).toEqual([1, 1, 1]);
    },
    120_000,
  );

  it('without Redis, flush-redis says so and empties the table of jobs', async () => {
    const plain = await cli(['chaos', 'flush-redis'], { COUNTERSIGN_HOME: home });
    expect(plain.code, plain.stderr).toBe(0);
    expect(plain.stdout).toMatch(/there is no Redis: the queue is a table in Postgres/);
  }, 60_000);

  it('does what the README shows, command by command', async () => {
    const readme = readFileSync(path.join(import.meta.dirname, '../../README.md'), 'utf8');
    const commands = [...readme.matchAll(/^npx countersign (chaos [^#\n]+)/gm)].map(([, text]) =>
      // As written, but sooner over.
      (text ?? '').trim().replace('--for 30s', '--for 2s').split(' '),
    );
    expect(commands.map(([, verb]) => verb).sort()).toEqual([
      'drop-connections',
      'duplicates',
      'flush-redis',
      'kill-workers',
    ]);
    for (const command of commands) {
      const plain = await cli(command, { COUNTERSIGN_HOME: home });
      expect(plain.code, plain.stdout + plain.stderr).toBe(0);
      expect(plain.stdout).toMatch(/^WHAT +TIMES\n/);
      expect(plain.stdout).toMatch(/^runs looked at, in Postgres and the provider +\d+$/m);
      expect(plain.stdout).toMatch(/^violations +0$/m);
    }
  }, 180_000);

  it('a fleet that is not at rest in time is a violation, and one that came to rest later is none', async () => {
    const world = await provider();
    const { runId, approvalId } = await terminal(home).startRelease('v8.0.0');
    await world.holdGate('chaos');
    await world.fault({
      kind: 'releases',
      fault: { type: 'wait_for_gate', gate: 'chaos', when: 'after_commit' },
    });
    await terminal(home).approve(approvalId);
    await world.waitFor('held', { kind: 'releases' });
    const early = await ours('chaos', 'flush-redis', '--settle', '200ms');
    expect(early.code).toBe(1);
    expect(early.json<Verdict>().violations).toEqual([
      {
        tenant: 'default',
        run: runId,
        found: [expect.stringMatching(/^I9: not at rest 0.2 s after .*running/)],
      },
    ]);
    await world.openGate('chaos');
    const late = await ours('chaos', 'flush-redis');
    expect(late.json<Verdict>()).toMatchObject({ violations: [] });
    expect(await commitsOf([await keyOf(runId)])).toEqual([1]);
  }, 60_000);

  // Last: what these forge stays.
  it('a second effect under one key is a violation, and the exit code is 1', async () => {
    const runId = await terminal(home).deployOnce('v9.0.0');
    const key = await keyOf(runId);
    const world = await provider();
    await world.setMode('releases', { dedupe: false });
    await world.create('releases', { release: 'v9.0.0', environment: 'production' }, { idempotencyKey: key });
    const verdict = await ours('chaos', 'duplicates', '--rate', '1', '--for', '1s');
    expect(verdict.code).toBe(1);
    expect(verdict.json<Verdict>().violations).toEqual([
      { tenant: 'default', run: runId, found: [`I4: 2 effects under the key ${key}`] },
    ]);
    const plain = await cli(['chaos', 'duplicates', '--rate', '1', '--for', '1s'], {
      COUNTERSIGN_HOME: home,
    });
    expect(plain.code).toBe(1);
    expect(plain.stdout).toMatch(new RegExp(`^${runId} +I4: 2 effects under the key ${key}$`, 'm'));
  }, 60_000);

  it('an ended run with an open action, and a chain of events that was tampered with, are violations', async () => {
    const runId = await terminal(home).deployOnce('v9.0.1');
    const key = await keyOf(runId);
    const { databaseUrl } = await terminal(home).fleet();
    const superuser = new pg.Client(databaseUrl);
    await superuser.connect();
    try {
      await superuser.query(
        "update countersign.actions set state = 'prepared', sealed_result = null where id = $1",
        [key],
      );
      await superuser.query(
        'update countersign.events set data = data || \'{"by": "mallory"}\' where run_id = $1 and n = 3',
        [runId],
      );
    } finally {
      await superuser.end();
    }
    const verdict = await ours('chaos', 'duplicates', '--rate', '1', '--for', '1s');
    expect(verdict.code).toBe(1);
    const [found] = verdict.json<Verdict>().violations.filter(({ run }) => run === runId);
    expect(found?.found.join('\n')).toMatch(/I6: the run has ended with action \S+ prepared/);
    expect(found?.found.join('\n')).toMatch(/I6: action \S+ happened and is prepared/);
    expect(found?.found.join('\n')).toMatch(/I10: the chain of events is broken at \S+#3/);
  }, 60_000);
});

describe('chaos, on a dev fleet with a Redis', () => {
  it.skipIf(noPrivateRedis)(
    'flushes it while runs are approved and waits for decisions: one effect each, and no violation',
    async () => {
      const redis = await startPrivateRedis();
      const place = await makeHome();
      const { ours: here, startRelease, approve, untilCompleted, deployOnce } = terminal(place);
      const fleet = await startDev(place, { REDIS_URL: redis.url(5) });
      try {
        const waiting = await startRelease('v1.0.0');
        const [flushed, others] = await Promise.all([
          spawnCli(['chaos', 'flush-redis', '--json'], { COUNTERSIGN_HOME: place }),
          deployOnce('v1.0.1'),
        ]);
        expect(flushed.json<Verdict>()).toMatchObject({ done: { queue: 'redis' }, violations: [] });
        expect(flushed.json<Verdict>().runs).toBeGreaterThanOrEqual(1);
        await approve(waiting.approvalId);
        // With the announcement of the approval gone, only the sweep can tell.
        const again = await here('chaos', 'flush-redis');
        expect(again.json<Verdict>()).toMatchObject({ violations: [] });
        await untilCompleted(waiting.runId);
        await untilCompleted(others);
        const { providerUrl } = await terminal(place).fleet();
        expect((await releaseClient(providerUrl).counts()).commits).toBe(2);
      } finally {
        fleet.child.kill('SIGINT');
        await fleet.ended;
        await redis.close();
        await rm(place, { recursive: true, force: true });
      }
    },
    90_000,
  );
});

describe('chaos, on a fleet that is named', () => {
  it.skipIf(noPrivateRedis)(
    'empties its Redis database and no other, and none with keys of somebody else',
    async () => {
      const [database, redis] = await Promise.all([createTestDatabase('chaos'), startPrivateRedis()]);
      const [one, other] = [redis.client(3), redis.client(4)];
      const flush = (more: Record<string, string> = {}) =>
        cli(['chaos', 'flush-redis', '--json'], {
          DATABASE_URL: database.url,
          REDIS_URL: redis.url(3),
          ...more,
        });
      try {
        await one.set('countersign:lease:a', 'b');
        await other.set('untouched', '1');
        const flushed = await flush();
        expect(flushed.json<Verdict>()).toMatchObject({
          done: { command: 'flush-redis', queue: 'redis', forgotten: 1 },
          runs: 0,
          violations: [],
        });
        expect(await keysOf(one)).toBe(0);
        expect(await keysOf(other)).toBe(1);
        // Another fleet on the same database is somebody else too, whatever either is called.
        await one.set('countersign:lease:a', 'b');
        expect((await flush({ COUNTERSIGN_QUEUE: 'blue' })).json()).toMatchObject({
          error: { code: 'CHAOS_REFUSED', details: { foreign: 1 } },
        });
        await one.del('countersign:lease:a');
        await one.set('blue:lease:a', 'b');
        expect((await flush({ COUNTERSIGN_QUEUE: 'blue' })).json()).toMatchObject({ done: { forgotten: 1 } });
        await one.set('somebody:else', '1');
        expect((await flush()).json()).toMatchObject({
          error: { code: 'CHAOS_REFUSED', details: { foreign: 1 } },
        });
        expect(await keysOf(one)).toBe(1);
      } finally {
        await redis.close();
        await database.drop();
      }
    },
  );

  it('looks at one tenant where row-level security hides the others from the login', async () => {
    const database = await createTestDatabase('chaos');
    const login = `limited_${process.pid}`;
    const superuser = new pg.Client(database.url);
    await superuser.connect();
    try {
      await superuser.query(
        `create role ${login} login password 'x' in role countersign_worker, countersign_api`,
      );
      const url = new URL(database.url);
      url.username = login;
      url.password = 'x';
      const env = { DATABASE_URL: url.href, COUNTERSIGN_TENANT: 'acme' };
      const limited = await cli(['chaos', 'drop-connections'], env);
      expect(limited.stdout, limited.stderr).toMatch(
        /^runs of tenant acme looked at, in Postgres alone +0$/m,
      );
      const all = await cli(['chaos', 'drop-connections'], { DATABASE_URL: database.url });
      expect(all.stdout, all.stderr).toMatch(/^runs looked at, in Postgres alone +0$/m);
    } finally {
      await superuser.query(`drop role if exists ${login}`);
      await superuser.end();
      await database.drop();
    }
  });

  it('kills only workers that dev has started', async () => {
    const database = await createTestDatabase('chaos');
    try {
      const refused = await cli(['chaos', 'kill-workers', '--json'], { DATABASE_URL: database.url });
      expect(refused.code).toBe(1);
      expect(refused.json()).toMatchObject({ error: { code: 'CHAOS_REFUSED' } });
    } finally {
      await database.drop();
    }
  });

  it.each([
    ['postgres://x:secret@db.example.com/x', '', 'DATABASE_URL'],
    ['postgres://x:secret@127.0.0.1:1/x?host=db.example.com', '', 'DATABASE_URL'],
    ['postgres://x:secret@127.0.0.1:1/x', 'redis://cache.example.com:6379', 'REDIS_URL'],
    ['postgres://x:secret@127.0.0.1.example.com/x', '', 'DATABASE_URL'],
  ])('makes no trouble on another machine: %s %s', async (databaseUrl, redisUrl, field) => {
    const env = { DATABASE_URL: databaseUrl, REDIS_URL: redisUrl };
    for (const verb of ['duplicates', 'kill-workers', 'flush-redis', 'drop-connections']) {
      const refused = await cli(['chaos', verb, '--json'], env);
      expect(refused.code).toBe(1);
      expect(refused.json()).toMatchObject({ error: { code: 'CHAOS_REFUSED', details: { field } } });
      expect(refused.stdout).not.toContain('secret');
    }
  });

  it('goes there when told so', async () => {
    // Nobody's address, and nothing listens there: the refusal would come before the attempt.
    const env = { DATABASE_URL: 'postgres://x@0.0.0.0:1/x' };
    expect((await cli(['chaos', 'drop-connections', '--json'], env)).json()).toMatchObject({
      error: { code: 'CHAOS_REFUSED' },
    });
    const tried = await cli(['chaos', 'drop-connections', '--not-loopback', '--json'], env);
    expect(tried.json()).toMatchObject({ error: { code: 'POSTGRES_UNAVAILABLE' } });
    expect(tried.code).toBe(3);
  });

  it.each([
    [['chaos'], /Say which trouble: duplicates, kill-workers, flush-redis, drop-connections/],
    [['chaos', 'duplicate'], /Did you mean duplicates\?/],
    [['chaos', 'duplicates', '--rate', '1.5'], /--rate.*above 0 and at most 1/],
    [['chaos', 'duplicates', '--rate', '0'], /--rate.*above 0 and at most 1/],
    [['chaos', 'kill-workers', '--every', 'often'], /--every.*duration/],
    [['chaos', 'flush-redis', '--for', '3s'], /unknown option '--for'/i],
  ])('says what is wrong with its words: %j', async (args, expected) => {
    const wrong = await cli(args);
    expect(wrong.code).toBe(2);
    expect(wrong.stderr).toMatch(expected);
  });
});

async function keysOf(redis: Redis): Promise<number> {
  await until('Redis to answer', () => redis.status === 'ready');
  return redis.dbsize();
}
