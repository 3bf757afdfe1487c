/**
 * Looks for a live server on a data directory, from its postmaster.pid.
 *
 * The file outlives kill -9 and power loss, and in a container its pid is soon another process. So a pid counts
 * only if that process works in this data directory (Linux: /proc), or, where that cannot be told, if a Postgres
 * answers on the port of the file.
 */
import { readFile, readlink, realpath } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { isErrno } from './failure.ts';

/** A server that does not answer for this long is treated as busy and asked again. */
const ANSWER_TIMEOUT_MS = 2_000;

/** The first message of a client that wants TLS: length 8, code 80877103. Postgres answers with one letter. */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);

export type PidFile = {
  pid: number;
  /** Null while the file is still being filled in, and for single-user mode. */
  port: number | null;
  /** `starting`, `stopping`, `ready` or `standby`; empty while the file is still being filled in. */
  status: string;
};

export type ServerState =
  /** Accepts connections. */
  | { kind: 'ready'; pid: number; port: number }
  /** Starting, stopping, or in single-user mode: look again soon. */
  | { kind: 'busy'; pid: number }
  /** Nobody runs there. `recycledPid` is the pid of a stale file that now is some other living process. */
  | { kind: 'none'; recycledPid: number | null };

export async function findServer(dataDir: string): Promise<ServerState> {
  const file = await readPidFile(dataDir);
  if (file === null) return { kind: 'none', recycledPid: null };

  const owner = await ownerOfPid(file.pid, dataDir);
  if (owner === 'nobody') return { kind: 'none', recycledPid: null };
  if (owner === 'other') return { kind: 'none', recycledPid: file.pid };

  if (file.status !== 'ready' || file.port === null) return { kind: 'busy', pid: file.pid };
  if (await answersAsPostgres(file.port)) return { kind: 'ready', pid: file.pid, port: file.port };
  // A known postmaster that is slow to answer is only slow. An unknown process is for Postgres to judge.
  return owner === 'postmaster' ? { kind: 'busy', pid: file.pid } : { kind: 'none', recycledPid: null };
}

/**
 * Reads postmaster.pid: line 1 the pid (negative in single-user mode), line 4 the port, line 8 the status.
 * Null if it is absent or holds no pid (a crash can leave it empty: Postgres says so in its log).
 */
export async function readPidFile(dataDir: string): Promise<PidFile | null> {
  let text: string;
  try {
    text = await readFile(join(dataDir, 'postmaster.pid'), 'utf8');
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return null;
    throw error;
  }
  const lines = text.split('\n').map((line) => line.trim());
  const pid = Math.abs(Number.parseInt(lines[0] ?? '', 10));
  const port = Number.parseInt(lines[3] ?? '', 10);
  if (!Number.isInteger(pid) || pid === 0) return null;
  return { pid, port: port > 0 ? port : null, status: lines[7] ?? '' };
}

/** `unknown`: alive, and this system does not tell in which folder it works. */
type PidOwner = 'postmaster' | 'other' | 'nobody' | 'unknown';

async function ownerOfPid(pid: number, dataDir: string): Promise<PidOwner> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: somebody else's process, while a server of this directory would be ours (root may signal all).
    return isErrno(error, 'EPERM') ? 'other' : 'nobody';
  }
  if (process.platform !== 'linux') return 'unknown';
  try {
    return (await readlink(`/proc/${pid}/cwd`)) === (await realpath(dataDir)) ? 'postmaster' : 'other';
  } catch {
    return (await isZombie(pid)) ? 'other' : 'unknown';
  }
}

/** A dead process whose parent has not asked for its exit code, as under a container's pid 1 that never does. */
async function isZombie(pid: number): Promise<boolean> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  // The name stands in parentheses and may itself hold any character; the state letter follows the last one.
  return text
    .slice(text.lastIndexOf(')') + 1)
    .trimStart()
    .startsWith('Z');
}

/** True if whatever listens on 127.0.0.1:port speaks the Postgres protocol. Never rejects. */
async function answersAsPostgres(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port, timeout: ANSWER_TIMEOUT_MS });
    const finish = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => socket.write(SSL_REQUEST));
    // S or N: with or without TLS. E: an error, such as too many clients.
    socket.once('data', (chunk) => finish(/^[SNE]/.test(chunk.toString('latin1'))));
    socket.once('timeout', () => finish(false));
    socket.once('error', () => finish(false));
    socket.once('close', () => finish(false));
  });
}
