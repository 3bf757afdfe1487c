/** One postmaster process: spawn, wait until it is ready, and stop. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile, realpath, rename, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Binaries } from './binaries.ts';
import { isHeld } from './cluster.ts';
import { failed, failedProgram, isErrno } from './failure.ts';
import type { Place } from './place.ts';
import { readPidFile } from './postmaster.ts';
import { cannotExecute, runProgram, spawnAs } from './program.ts';
import { serverArgs } from './server-flags.ts';

const READY_POLL_MS = 10;
/** A free port can be taken between our look and Postgres' bind: look again, this often. */
const PORT_ATTEMPTS = 3;
/** Fast shutdown writes a checkpoint, which a slow disk may stretch. Then the crash-safe immediate one follows. */
const FAST_SHUTDOWN_MS = 30_000;
/** The log is set aside at a start once it has grown past this. */
const LOG_LIMIT_BYTES = 16 * 1024 * 1024;

export type RunningServer = { child: ChildProcess; pid: number; port: number };

type StartOptions = { port: number | null; durable: boolean; deadline: number; recycledPid: number | null };

/**
 * Starts a postmaster and resolves when it accepts connections; null if another one holds the data directory.
 *
 * @throws EMBEDDED_POSTGRES_FAILED port_in_use, did_not_start and the causes of failedProgram.
 */
export async function startServer(
  binaries: Binaries,
  place: Place,
  options: StartOptions,
): Promise<RunningServer | null> {
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await freePort());
    const outcome = await tryPort(binaries, place, { ...options, port });
    if (outcome.kind === 'running') return outcome.server;
    if (outcome.kind === 'held') return null;
    const portTaken = outcome.error.details.reason === 'port_in_use';
    if (!portTaken || options.port !== null || attempt === PORT_ATTEMPTS) throw outcome.error;
  }
}

type Outcome =
  | { kind: 'running'; server: RunningServer }
  | { kind: 'held' }
  | { kind: 'failed'; error: ReturnType<typeof failedProgram> };

async function tryPort(
  binaries: Binaries,
  place: Place,
  options: StartOptions & { port: number },
): Promise<Outcome> {
  const { port, deadline } = options;
  const logStart = await setLogAside(place.logFile);
  const child = await spawnServer(binaries, place, options);
  const pid = child.pid as number;
  while (child.exitCode === null && child.signalCode === null) {
    const file = await readPidFile(place.dataDir);
    if (file?.pid === pid && file.status === 'ready')
      return { kind: 'running', server: { child, pid, port } };
    if (Date.now() > deadline) {
      child.kill('SIGQUIT');
      const what = `the server (pid ${pid}) did not become ready in time`;
      return { kind: 'failed', error: failed('did_not_start', what, `read ${place.logFile}`) };
    }
    await sleep(READY_POLL_MS);
  }
  const text = await linesOf(place.logFile, logStart, pid);
  if (isHeld(text)) return { kind: 'held' };
  const { dir, logFile } = place;
  return { kind: 'failed', error: failedProgram({ program: 'postgres', text, dir, logFile, port }) };
}

/** In a process group of its own, on a log file, and not counted by Node's event loop. */
async function spawnServer(
  binaries: Binaries,
  place: Place,
  options: StartOptions & { port: number },
): Promise<ChildProcess> {
  const { port, durable, recycledPid } = options;
  // Opened by us, so the log may lie where the Postgres user cannot go.
  const log = await open(place.logFile, 'a', 0o600);
  try {
    // Resolved by us: the way through `dir` may be closed to the Postgres user.
    const dataDir = await realpath(place.dataDir);
    const child = spawn(binaries.postgres, ['-D', dataDir, ...serverArgs({ durable, port })], {
      ...spawnAs(place.identity, recycledPid),
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
    });
    try {
      await once(child, 'spawn');
    } catch (error) {
      throw cannotExecute(binaries.postgres, error as Error);
    }
    child.unref();
    return child;
  } finally {
    await log.close();
  }
}

/** Stops the server and resolves when it is gone. Not an error if it already is. */
export async function stopServer(binaries: Binaries, place: Place, server: RunningServer): Promise<void> {
  const { child } = server;
  if (child.exitCode !== null || child.signalCode !== null) return;
  // The exit must now keep Node alive, or the process would end with the shutdown half done.
  child.ref();
  const exited = once(child, 'exit');
  if (process.platform === 'win32') {
    // Windows has no SIGINT to send: kill() there is the hard kind.
    const args = ['stop', '-D', place.dataDir, '-m', 'fast', '-t', String(FAST_SHUTDOWN_MS / 1000)];
    await runProgram(binaries.pgCtl, args, { identity: null });
  } else {
    child.kill('SIGINT');
  }
  const waited = new AbortController();
  const escalate = sleep(FAST_SHUTDOWN_MS, undefined, { signal: waited.signal }).then(
    () => child.kill('SIGQUIT'),
    () => false, // aborted: it exited in time
  );
  await exited;
  waited.abort();
  await escalate;
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new TypeError('a TCP server has an address');
  return address.port;
}

/** Rotates a large log to `postgres.log.1`. Returns the offset at which the next server's lines begin. */
async function setLogAside(logFile: string): Promise<number> {
  try {
    const { size } = await stat(logFile);
    if (size <= LOG_LIMIT_BYTES) return size;
    await rename(logFile, `${logFile}.1`);
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw error;
  }
  return 0;
}

/** What one server wrote since `start`: two starters share the log, and each line carries the pid. */
async function linesOf(logFile: string, start: number, pid: number): Promise<string> {
  const written = (await readFile(logFile)).subarray(start).toString('utf8');
  const own = written.split('\n').filter((line) => line.includes(` [${pid}] `));
  return own.length > 0 ? own.join('\n') : written;
}
