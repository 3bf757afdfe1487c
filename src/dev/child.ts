import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { CountersignError } from '../errors.ts';
import { readableLine } from './output-lines.ts';

export type ChildSpec = {
  /** Shown before each of its lines: `worker-1`. */
  name: string;
  /** A compiled file, run by this Node. */
  file: string;
  args: readonly string[];
  env: NodeJS.ProcessEnv;
};

export type Child = {
  readonly name: string;
  readonly pid: number;
  /** The first line of its stdout, as JSON. @throws PROCESS_NOT_STARTED when it ends or says nothing in time. */
  readonly ready: Promise<Record<string, unknown>>;
  /** How it ended, in words. */
  readonly ended: Promise<string>;
  isAlive(): boolean;
  /** Asks it to stop, and kills it when it has not after `graceMs`. Resolves when it is gone. */
  stop(graceMs: number): Promise<void>;
  kill(): void;
};

/** A loaded two-core machine may take seconds to start a process. */
const READY_MS = 30_000;
/** Lines of output kept for the error of a child that did not start. */
const KEPT_LINES = 8;

/**
 * Starts one process of the fleet. It is in a process group of its own, so that Ctrl-C reaches the supervisor alone,
 * and holds the other end of its stdin, so that it notices when the supervisor dies in whatever way.
 *
 * @param onLine told each line of its output, readable.
 */
export function startChild(spec: ChildSpec, onLine: (name: string, line: string) => void): Child {
  const { name } = spec;
  const process_ = spawn(process.execPath, [spec.file, ...spec.args], {
    env: spec.env,
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const last: string[] = [];
  const tell = (line: string) => {
    const readable = readableLine(line);
    last.push(readable);
    last.splice(0, last.length - KEPT_LINES);
    onLine(name, readable);
  };
  const ended = endOf(process_);
  const ready = firstLine(process_, tell, ended, name, last);
  // Whoever started it may look at `ready` only after other things have failed.
  ready.catch(() => undefined);
  // Writing to a child that has just died must not end the supervisor.
  process_.stdin.on('error', () => undefined);
  return {
    name,
    pid: process_.pid ?? -1,
    ready,
    ended,
    isAlive: () => process_.exitCode === null && process_.signalCode === null && process_.pid !== undefined,
    kill: () => void process_.kill('SIGKILL'),
    async stop(graceMs) {
      process_.kill('SIGTERM');
      const timer = setTimeout(() => process_.kill('SIGKILL'), graceMs);
      await ended;
      clearTimeout(timer);
    },
  };
}

function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(`could not be started: ${error.message}`));
    child.once('exit', (code, signal) =>
      resolve(signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`),
    );
  });
}

function firstLine(
  child: ChildProcess & { stdout: Readable; stderr: Readable },
  tell: (line: string) => void,
  ended: Promise<string>,
  name: string,
  last: readonly string[],
): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) =>
      reject(
        new CountersignError('PROCESS_NOT_STARTED', [`The ${name} process ${why}.`, ...last].join('\n  '), {
          details: { process: name },
        }),
      );
    const timer = setTimeout(() => fail(`said nothing for ${READY_MS / 1_000} s`), READY_MS);
    ended.then((how) => {
      clearTimeout(timer);
      // Its last lines may still be on their way through the pipe.
      setImmediate(() => fail(how));
    }, fail);
    const out = createInterface({ input: child.stdout });
    out.once('line', (line) => {
      clearTimeout(timer);
      try {
        resolve(JSON.parse(line) as Record<string, unknown>);
      } catch {
        fail('did not say that it was ready');
      }
      out.on('line', tell);
    });
    createInterface({ input: child.stderr }).on('line', tell);
  });
}
