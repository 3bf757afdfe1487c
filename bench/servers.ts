/** The servers under both sides, for the whole bench: one durable Postgres, and for its first half one Redis. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cleanup } from '../lab/cleanup.ts';
import { temporaryPostgres } from '../lab/postgres-server.ts';
import { emptyRedisDatabase } from '../lab/redis-database.ts';
import { openDatabase } from '../src/index.ts';
import { openRedis } from '../src/queue/index.ts';

export type Servers = {
  postgresPid: number;
  /** As superuser, for set-up and checks; nothing that is measured goes through it. */
  createDatabase(name: string): Promise<string>;
  dropDatabase(name: string): Promise<void>;
  redisUrl: string | null;
  versions: { postgres: string; redis: string | null };
};

export async function startServers(
  cleanup: Cleanup,
  withRedis: boolean,
  postgresSettings: Readonly<Record<string, string>> = {},
): Promise<Servers> {
  const postgres = await temporaryPostgres(cleanup, 'bench', postgresSettings);
  const admin = openDatabase({ url: postgres.url, role: null, max: 1 });
  cleanup.defer(() => admin.close());
  const { rows } = await admin.pool.query<{ version: string }>(
    "select current_setting('server_version') version",
  );
  const redisUrl = withRedis ? await redisFor(cleanup) : null;
  return {
    postgresPid: postgres.pid,
    redisUrl,
    versions: {
      postgres: rows[0]?.version ?? 'unknown',
      redis: redisUrl === null ? null : await redisVersion(redisUrl),
    },
    async createDatabase(name) {
      await admin.pool.query(`create database ${name}`);
      const url = new URL(postgres.url);
      url.pathname = `/${name}`;
      return url.href;
    },
    async dropDatabase(name) {
      await admin.pool.query(`drop database ${name} with (force)`);
    },
  };
}

async function redisFor(cleanup: Cleanup): Promise<string> {
  return process.env.REDIS_URL ? emptyRedisDatabase(cleanup, process.env.REDIS_URL) : startRedis(cleanup);
}

/** A Redis as production would have it: append-only file, synced each second, no eviction. */
async function startRedis(cleanup: Cleanup): Promise<string> {
  const dir = mkdtempSync(join(tmpdir(), `countersign-bench-redis-${process.pid}-`));
  cleanup.defer(() => rm(dir, { recursive: true, force: true }));
  const port = await freePort();
  const address = ['--bind', '127.0.0.1', '--port', String(port), '--dir', dir];
  const settings = ['--save', '', '--appendonly', 'yes', '--maxmemory-policy', 'noeviction'];
  const child = spawn('redis-server', [...address, ...settings], { stdio: 'ignore' });
  let failure: Error | null = null;
  const ended = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', (error) => {
      failure = error;
      resolve();
    });
  });
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  cleanup.defer(async () => {
    process.off('exit', kill);
    kill();
    await ended;
  });
  const url = `redis://127.0.0.1:${port}`;
  for (let tries = 0; tries < 100 && failure === null; tries += 1) {
    if ((await redisVersion(url).catch(() => null)) !== null) {
      return url;
    }
    await sleep(50);
  }
  throw new Error('redis-server did not start: install it, set REDIS_URL, or use --backend embedded', {
    cause: failure,
  });
}

async function redisVersion(url: string): Promise<string> {
  const redis = openRedis(url, () => undefined);
  try {
    await once(redis, 'ready', { signal: AbortSignal.timeout(1_000) });
    return /redis_version:(\S+)/.exec(await redis.info('server'))?.[1] ?? 'unknown';
  } finally {
    redis.disconnect();
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') {
    throw new TypeError('a TCP server has an address');
  }
  return address.port;
}
