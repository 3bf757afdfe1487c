/** The one error of this folder, and the translation of what Postgres and the kernel say into it. */
import { CountersignError, type ErrorDetails, isCountersignError } from '../errors.ts';

export type FailureReason =
  | 'options_invalid'
  | 'unsupported_platform'
  | 'package_missing'
  | 'libraries_missing'
  | 'cannot_execute'
  | 'no_unprivileged_user'
  | 'user_unknown'
  | 'wrong_owner'
  | 'not_writable'
  | 'disk_full'
  | 'incomplete_cluster'
  | 'database_missing'
  | 'port_in_use'
  | 'did_not_start';

export const USE_A_REAL_SERVER = 'set DATABASE_URL to a PostgreSQL server';

/** Lines of server output an error quotes: enough for a FATAL with its context. */
const QUOTED_LINES = 12;

/**
 * Builds EMBEDDED_POSTGRES_FAILED. `fix` is one imperative sentence part: the message shows it after "Fix:".
 */
export function failed(
  reason: FailureReason,
  what: string,
  fix: string,
  more: { details?: ErrorDetails; cause?: unknown } = {},
): CountersignError {
  return new CountersignError('EMBEDDED_POSTGRES_FAILED', `Embedded Postgres: ${what}. Fix: ${fix}.`, {
    details: { reason, fix, ...more.details },
    ...(more.cause === undefined ? {} : { cause: more.cause }),
  });
}

/** What a failed program printed, and where. */
export type ProgramOutput = { program: string; text: string; dir: string; logFile?: string; port?: number };

/** Output that names its own cause: the first pattern that matches decides. */
const KNOWN_OUTPUT: readonly {
  pattern: RegExp;
  reason: FailureReason;
  what: (output: ProgramOutput) => string;
  fix: (output: ProgramOutput) => string;
}[] = [
  {
    pattern: /could not look up effective user ID/,
    reason: 'user_unknown',
    what: () => `uid ${process.getuid?.()} has no entry in /etc/passwd, which initdb requires`,
    fix: () =>
      `add one as root (echo "app:x:${process.getuid?.()}:0::/tmp:/bin/false" >> /etc/passwd) or run as a known user`,
  },
  {
    pattern: /Address already in use|address already in use|could not bind/,
    reason: 'port_in_use',
    what: (output) => `port ${output.port ?? '?'} on 127.0.0.1 is in use`,
    fix: () => 'free that port, or leave `port` out to get a free one',
  },
  {
    pattern: /No space left on device|Disk quota exceeded/,
    reason: 'disk_full',
    what: (output) => `no space left while writing ${output.dir}`,
    fix: () => 'free about 100 MB, or choose another `dir`',
  },
  {
    pattern: /error while loading shared libraries|Library not loaded|GLIBC_[\d.]+' not found/,
    reason: 'libraries_missing',
    what: () => 'a shared library of the Postgres binaries is missing',
    fix: () => `install the library named below, reinstall node_modules, or ${USE_A_REAL_SERVER}`,
  },
  {
    pattern: /Permission denied|Read-only file system|could not create directory/,
    reason: 'not_writable',
    what: (output) => `the user that runs Postgres cannot use ${output.dir}`,
    fix: () => 'choose a `dir` that user can write to and whose parent folders it can enter',
  },
  {
    pattern: /wrong ownership|invalid permissions/,
    reason: 'wrong_owner',
    what: (output) => `the data directory in ${output.dir} belongs to another user`,
    fix: () => 'start as the user that made it, chown it back, or choose another `dir`',
  },
];

/** Turns the output of initdb or postgres into a failure that names the fix, quoting its last lines. */
export function failedProgram(output: ProgramOutput): CountersignError {
  const lines = output.text.split('\n').filter((line) => line.trim() !== '');
  const lastLines = lines.slice(-QUOTED_LINES);
  const known = KNOWN_OUTPUT.find(({ pattern }) => pattern.test(output.text));
  const reason = known?.reason ?? 'did_not_start';
  const what = known?.what(output) ?? `${output.program} failed`;
  const fix = known?.fix(output) ?? `read ${output.logFile ?? 'the lines below'}, or ${USE_A_REAL_SERVER}`;
  const error = failed(reason, what, fix, {
    details: { program: output.program, lastLines, ...(output.logFile ? { logFile: output.logFile } : {}) },
  });
  if (lastLines.length > 0) error.message += `\n  ${lastLines.join('\n  ')}`;
  return error;
}

/** Maps a file-system error met on the way to one that names the fix; our own errors pass unchanged. */
export function asFailure(error: unknown, dir: string): unknown {
  if (isCountersignError(error) || !isErrno(error)) return error;
  const where = error.path ?? dir;
  switch (error.code) {
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
    case 'ENOTDIR':
      return failed('not_writable', `cannot write ${where} (${error.code})`, 'choose a writable `dir`', {
        cause: error,
      });
    case 'ENOSPC':
    case 'EDQUOT':
      return failed('disk_full', `no space left for ${where}`, 'free about 100 MB, or choose another `dir`', {
        cause: error,
      });
    default:
      return failed('did_not_start', `${error.message}`, `see the cause, or ${USE_A_REAL_SERVER}`, {
        cause: error,
      });
  }
}

/** True for an error of the kernel, optionally with one of the codes. */
export function isErrno(error: unknown, ...codes: string[]): error is NodeJS.ErrnoException {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return false;
  return codes.length === 0 || codes.includes(error.code);
}
