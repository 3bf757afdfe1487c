/** A Redis of one test file's own: to be stopped, flushed and read, with enough databases for tests that run at once. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { ping } from './redis.ts';

const DATABASES = 64;
/** Tests that stop and flush a server need a binary of their own to start; a URL or a container is not theirs. */
const BINARY = ['redis-server', 'valkey-server'].find((name) =>
  (process.env.PATH ?? '').split(delimiter).some((folder) => existsSync(join(folder, name))),
);

/** Without the binary such tests are skipped; in CI they then fail instead. */
export const noPrivateRedis = BINARY === undefined && process.env.CI !== 'true';

export type PrivateRedis = {
  /** The URL of one of its 64 databases. */
  url(database?: number): string;
  /** A connection for the test's own look at things. */
  client(database?: number): Redis;
  /** Ends the server as kill -9 does; everything in it is gone. */
  stop(): Promise<void>;
  /** Starts it again, empty, on the same port. */
  start(): Promise<void>;
  close(): Promise<void>;
};

/** @param args more of the server's own options. */
export async function startPrivateRedis(args: string[] = []): Promise<PrivateRedis> {
  const port = await freePort();
  const clients: Redis[] = [];
  let server: ChildProcess | null = null;
  const killAtExit = () => void server?.kill('SIGKILL');
  process.once('exit', killAtExit);
  const redis: PrivateRedis = {
    url: (database = 0) => `redis://127.0.0.1:${port}/${database}`,
    client(database = 0) {
      const client = new Redis(port, '127.0.0.1', { db: database, retryStrategy: () => 100 });
      client.on('error', () => undefined);
      clients.push(client);
      return client;
    },
    async stop() {
      if (server === null) return;
      const ended = once(server, 'close');
      server.kill('SIGKILL');
      await ended;
      server = null;
    },
    async start() {
      const fixed = [
        '--bind',
        '127.0.0.1',
        '--port',
        String(port),
        '--dir',
        tmpdir(),
        '--save',
        '',
        '--appendonly',
        'no',
      ];
      const policy = args.includes('--maxmemory-policy') ? [] : ['--maxmemory-policy', 'noeviction'];
      server = spawn(
        BINARY ?? 'redis-server',
        [...fixed, '--databases', String(DATABASES), ...policy, ...args],
        {
          stdio: 'ignore',
        },
      );
      for (const end = Date.now() + 10_000; !(await ping(port)); await sleep(20)) {
        if (Date.now() > end) throw new Error('the private redis-server did not answer');
      }
    },
    async close() {
      process.off('exit', killAtExit);
      for (const client of clients) client.disconnect();
      await redis.stop();
    },
  };
  await redis.start();
  return redis;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new TypeError('a TCP server has an address');
  return address.port;
}
