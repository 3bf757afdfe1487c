/** Runs the short-lived programs of the platform package (initdb, `postgres --single`) to their end. */
import { spawn } from 'node:child_process';
import { failed, USE_A_REAL_SERVER } from './failure.ts';
import type { Identity } from './identity.ts';

/** initdb takes 1 to 3 s here; a slow disk is granted this much. */
const PROGRAM_TIMEOUT_MS = 120_000;
/** Keep the end of the output: that is where the error is. */
const OUTPUT_LIMIT_CHARS = 65_536;

export type ProgramResult = { code: number | null; output: string };

/**
 * Runs `file` as `identity` and resolves with its exit code and the end of stdout and stderr, whatever the code.
 * Ctrl-C reaches it: an interrupted first start leaves only a stage folder.
 *
 * @throws EMBEDDED_POSTGRES_FAILED cannot_execute when the program cannot be started at all.
 */
export async function runProgram(
  file: string,
  args: readonly string[],
  options: { identity: Identity | null; stdin?: string; recycledPid?: number | null },
): Promise<ProgramResult> {
  const child = spawn(file, args, {
    ...spawnAs(options.identity, options.recycledPid ?? null),
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: PROGRAM_TIMEOUT_MS,
  });
  let output = '';
  const collect = (chunk: Buffer): void => {
    output = (output + chunk.toString()).slice(-OUTPUT_LIMIT_CHARS);
  };
  child.stdout.on('data', collect);
  child.stderr.on('data', collect);
  // A program that exits before reading its input breaks the pipe; its exit code tells the story.
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.stdin ?? '');
  return new Promise((resolve, reject) => {
    child.once('error', (error) => reject(cannotExecute(file, error)));
    child.once('close', (code) => resolve({ code, output }));
  });
}

/**
 * Spawn options every Postgres program shares. The environment is a short allow-list: the parent's may hold keys,
 * and PG* variables would change what the programs do. LC_ALL=C because we read their messages.
 *
 * `recycledPid` is a living process that a stale postmaster.pid names although it is no postmaster. Postgres would
 * refuse to start; told that the pid is its grandparent (what pg_ctl uses this variable for), it knows better, and
 * still makes every other check. That is safer than deleting the file, which a rival may just have written.
 */
export function spawnAs(
  identity: Identity | null,
  recycledPid: number | null,
): {
  cwd: string;
  env: NodeJS.ProcessEnv;
  windowsHide: boolean;
  uid?: number;
  gid?: number;
} {
  const env: NodeJS.ProcessEnv = { LC_ALL: 'C', TZ: 'UTC' };
  for (const name of ['PATH', 'TMPDIR', 'TEMP', 'TMP', 'SystemRoot', 'COMSPEC']) {
    const value = process.env[name];
    if (value !== undefined) env[name] = value;
  }
  if (recycledPid !== null) env.PG_GRANDPARENT_PID = String(recycledPid);
  // The parent's cwd may be closed to the other user; the root never is.
  const shared = { cwd: '/', env, windowsHide: true };
  return identity === null ? shared : { ...shared, uid: identity.uid, gid: identity.gid };
}

export function cannotExecute(file: string, cause: Error): Error {
  const what = `${file} cannot be executed (${cause.message})`;
  const fix = `use a glibc-based system (not Alpine) without noexec on that folder, or ${USE_A_REAL_SERVER}`;
  return failed('cannot_execute', what, fix, { cause });
}
