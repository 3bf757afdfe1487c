import { type Logger, pino } from 'pino';

export type Log = Logger;

/**
 * Structured log on stderr, so that stdout stays for a command's own output.
 *
 * Log records carry ids, codes, counts and times. Errors are written as class, code and message of our own errors
 * only: a provider's or a database's text may quote arguments.
 *
 * @param level pino level; default `LOG_LEVEL` or `info`.
 */
export function createLog(name: string, level = process.env.LOG_LEVEL ?? 'info'): Log {
  return pino({ name, level, serializers: { err: describeError } }, pino.destination(2));
}

export function describeError(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) {
    return { type: typeof error };
  }
  const ours = error.name === 'CountersignError' && 'toJSON' in error && typeof error.toJSON === 'function';
  const cause = error.cause === undefined ? {} : { cause: describeError(error.cause) };
  return ours
    ? { type: error.name, ...(error.toJSON as () => Record<string, unknown>)(), ...cause }
    : {
        type: error.constructor.name,
        ...('code' in error ? { code: error.code } : {}),
        // A foreign message may have many lines, and quote anything: the first frame comes after all of them.
        at: error.stack
          ?.slice(error.stack.indexOf(error.message) + error.message.length)
          .split('\n')
          .find((line) => /^\s+at /.test(line))
          ?.trim(),
        ...cause,
      };
}
