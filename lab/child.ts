/**
 * A worker process as its parent sees it: a module of dist/ in an OS process of its own, which answers calls over
 * the IPC channel (see answer.ts) and ends when the parent does, however the parent ends.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Cleanup } from './cleanup.ts';

export type Child = {
  readonly pid: number;
  /** @throws what the method threw in the child, or that the child ended first. */
  call<Result>(method: string, parameters?: unknown): Promise<Result>;
  /** Resolves with how it ended once it has, whoever ended it. */
  readonly ended: Promise<string>;
  /** Told every unasked message of the child. */
  onNews(listener: (news: unknown) => void): void;
  /** Asks it to stop, and kills it if it does not. Resolves when the process is gone. */
  stop(): Promise<void>;
};

export type ChildOptions = {
  /** The built module to run, as a URL next to the caller: `new URL('./worker.js', import.meta.url)`. */
  module: URL;
  /** For node itself, such as --cpu-prof. */
  nodeArguments?: string[];
};

/** Handed to the child's `answerCalls` for each call, and back with `result` or `error`. */
export type CallMessage = { call: number; method: string; parameters: unknown };
export type AnswerMessage = { call: number; result?: unknown; error?: string };

/** A worker drains for a while before it is gone; generous, for a busy machine. */
const STOP_MS = 15_000;

/** Starts the process; the cleanup stops it. */
export function startChild(cleanup: Cleanup, options: ChildOptions): Child {
  const child = fork(fileURLToPath(options.module), [], {
    execArgv: options.nodeArguments ?? [],
    // stdout belongs to the command's own result.
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const { pid } = child;
  if (pid === undefined) {
    throw new Error(`${options.module.pathname} did not start`);
  }
  const calls = new Map<number, (answer: AnswerMessage) => void>();
  const listeners: ((news: unknown) => void)[] = [];
  let last = 0;
  child.on('message', (message: AnswerMessage | { news: unknown }) => {
    if ('news' in message) {
      for (const listener of listeners) {
        listener(message.news);
      }
      return;
    }
    calls.get(message.call)?.(message);
    calls.delete(message.call);
  });
  const ended = new Promise<string>((resolve) => {
    child.once('exit', (code, signal) => {
      const how = `process ${pid} ended (${code ?? signal})`;
      resolve(how);
      for (const [call, settle] of calls) {
        settle({ call, error: `${how} before it answered` });
      }
      calls.clear();
    });
  });
  child.once('error', () => undefined);
  const stop = () => stopChild(child);
  cleanup.defer(stop);
  return {
    pid,
    stop,
    ended,
    onNews: (listener) => {
      listeners.push(listener);
    },
    call: <Result>(method: string, parameters: unknown = null) =>
      new Promise<Result>((resolve, reject) => {
        last += 1;
        calls.set(last, ({ error, result }) =>
          error === undefined ? resolve(result as Result) : reject(new Error(error)),
        );
        const message: CallMessage = { call: last, method, parameters };
        child.send(message, (error) => {
          if (error !== null && calls.delete(message.call)) {
            reject(error);
          }
        });
      }),
  };
}

/** Closing the channel is the request to stop: see answer.ts. */
async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) {
    return;
  }
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  if (child.connected) {
    child.disconnect();
  }
  await exited;
  clearTimeout(timer);
}
