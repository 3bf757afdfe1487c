/**
 * One Redis for the tests that need a real one, from the first source that works:
 * REDIS_URL; a `redis-server` or `valkey-server` on PATH; the same after apt-get (root on Debian); docker.
 * Without any, those tests are skipped by name. In CI (CI=true) that is a failure: nothing is skipped in silence.
 *
 * A server started here holds nothing on disk, listens on a free loopback port, and dies with stop() or with this
 * process. After a kill -9 of this process it stays behind, idle, until somebody stops it.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants, rmSync } from 'node:fs';
import { access, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

export type TestRedis = { url: string; kind: 'url' | 'binary' | 'docker'; stop(): Promise<void> };
export type NoRedis = { skipped: string };

const BINARIES = ['redis-server', 'valkey-server'];
const DOCKER_IMAGE = 'redis:7-alpine';
const READY_TIMEOUT_MS = 10_000;
/** apt-get update plus 1.5 MB of packages; docker pulls about 15 MB. */
const INSTALL_TIMEOUT_MS = 180_000;

/** BullMQ loses jobs under any other eviction policy; the rest keeps the server off the disk. */
const SERVER_ARGS = ['--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction'];

const run = promisify(execFile);

/** @param options.own never the one that REDIS_URL names: for those who flush it. */
export async function startRedis(options: { own?: boolean } = {}): Promise<TestRedis | NoRedis> {
  const given = options.own === true ? undefined : process.env.REDIS_URL;
  if (given) return { url: given, kind: 'url', stop: async () => undefined };

  const tried: string[] = [];
  const binary = (await findBinary()) ?? (await installWithApt(tried));
  if (binary !== null) return startBinary(binary);
  const container = await startContainer(tried);
  if (container !== null) return container;

  const skipped = `no Redis: install redis-server or valkey-server, or set REDIS_URL (${tried.join('; ')})`;
  if (process.env.CI === 'true') throw new Error(`CI=true forbids skipping tests: ${skipped}`);
  return { skipped };
}

async function findBinary(): Promise<string | null> {
  for (const name of BINARIES) {
    const found = await onPath(name);
    if (found !== null) return found;
  }
  return null;
}

async function onPath(name: string): Promise<string | null> {
  for (const folder of (process.env.PATH ?? '').split(delimiter).filter((part) => part !== '')) {
    const candidate = join(folder, name);
    try {
      await access(candidate, constants.X_OK);
      return candidate;
    } catch {
      // not in this folder
    }
  }
  return null;
}

async function startBinary(binary: string): Promise<TestRedis> {
  const dir = await mkdtemp(join(tmpdir(), 'countersign-redis-'));
  const port = await freePort();
  const args = ['--bind', '127.0.0.1', '--port', String(port), '--dir', dir, ...SERVER_ARGS];
  const child = spawn(binary, args, { stdio: 'ignore' });
  const exited = new Promise<void>((resolve) => child.once('close', () => resolve()));
  let startError: Error | null = null;
  child.once('error', (error) => {
    startError = error;
  });
  const kill = (): void => {
    child.kill('SIGKILL'); // nothing of it is worth a clean shutdown
  };
  const abandon = (): void => {
    kill();
    rmSync(dir, { recursive: true, force: true });
  };
  process.once('exit', abandon);

  const stop = async (): Promise<void> => {
    process.off('exit', abandon);
    kill();
    await exited;
    await rm(dir, { recursive: true, force: true });
  };
  const alive = (): boolean => startError === null && child.exitCode === null && child.signalCode === null;
  if (!(await answersPing(port, alive))) {
    await stop();
    throw new Error(`${binary} did not answer PING on port ${port}`, { cause: startError });
  }
  return { url: `redis://127.0.0.1:${port}`, kind: 'binary', stop };
}

/** Leaves the binary only: a policy-rc.d that says no keeps the package from starting its service on 6379. */
async function installWithApt(tried: string[]): Promise<string | null> {
  if (process.getuid?.() !== 0 || (await onPath('apt-get')) === null) {
    tried.push('apt-get needs root on Debian or Ubuntu');
    return null;
  }
  const policy = '/usr/sbin/policy-rc.d';
  const ownPolicy = await writeFile(policy, '#!/bin/sh\nexit 101\n', { flag: 'wx', mode: 0o755 }).then(
    () => true,
    () => false, // a container has one already
  );
  try {
    const options = {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
      timeout: INSTALL_TIMEOUT_MS,
    };
    await run('apt-get', ['-qq', 'update'], options);
    await run('apt-get', ['-qq', '-y', '--no-install-recommends', 'install', 'redis-server'], options);
    const binary = await findBinary();
    if (binary === null) tried.push('apt-get installed redis-server, but it is not on PATH');
    return binary;
  } catch (error) {
    tried.push(`apt-get failed: ${firstLine(error)}`);
    return null;
  } finally {
    if (ownPolicy) await rm(policy, { force: true });
  }
}

async function startContainer(tried: string[]): Promise<TestRedis | null> {
  if ((await onPath('docker')) === null) {
    tried.push('no docker');
    return null;
  }
  let id: string;
  try {
    const args = ['run', '--rm', '--detach', '--publish', '127.0.0.1::6379', DOCKER_IMAGE, 'redis-server'];
    const started = await run('docker', [...args, ...SERVER_ARGS], { timeout: INSTALL_TIMEOUT_MS });
    id = started.stdout.trim();
  } catch (error) {
    tried.push(`docker run failed: ${firstLine(error)}`);
    return null;
  }
  const abandon = (): void => {
    // On exit nothing may be awaited; the docker client outlives us and finishes.
    spawn('docker', ['rm', '--force', id], { stdio: 'ignore', detached: true }).unref();
  };
  process.once('exit', abandon);
  const stop = async (): Promise<void> => {
    process.off('exit', abandon);
    await run('docker', ['rm', '--force', id]);
  };
  const published = await run('docker', ['port', id, '6379/tcp']);
  const port = Number(/127\.0\.0\.1:(\d+)/.exec(published.stdout)?.[1]);
  if (!(await answersPing(port, () => true))) {
    await stop();
    throw new Error(`the container ${id} of ${DOCKER_IMAGE} did not answer PING on port ${port}`);
  }
  return { url: `redis://127.0.0.1:${port}`, kind: 'docker', stop };
}

function firstLine(error: unknown): string {
  const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
  return (stderr.trim() || String(error)).split('\n')[0] ?? '';
}

/** Asks until +PONG, the deadline, or until `alive` says that nobody is left to ask. */
async function answersPing(port: number, alive: () => boolean): Promise<boolean> {
  const deadline = Date.now() + READY_TIMEOUT_MS;
  while (Date.now() < deadline && alive()) {
    if (await ping(port)) return true;
    await sleep(20);
  }
  return false;
}

/** One PING over a bare socket. Never rejects. */
export async function ping(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port, timeout: 1_000 });
    const finish = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => socket.write('PING\r\n'));
    socket.once('data', (chunk) => finish(chunk.toString().startsWith('+PONG')));
    socket.once('timeout', () => finish(false));
    socket.once('error', () => finish(false));
    socket.once('close', () => finish(false));
  });
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
