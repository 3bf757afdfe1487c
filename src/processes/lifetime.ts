import type { Log } from '../log.ts';
import type { Running } from './loop.ts';

/** A stop that has not ended by then never will: longer than a worker's drain and every close below it. */
const STOP_MS = 30_000;

/** Not SIGHUP: `nohup` means it. Whoever is ended by it leaves what a crash leaves. */
const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/**
 * Starts something and keeps it until SIGTERM or SIGINT asks it to stop (with `exitWithParent` also when stdin
 * ends: the parent holds the other end, and it ends however the parent dies). Resolves when it has stopped. A second
 * signal ends the process at once; everything here may be killed at any time.
 *
 * @param options.onReady told once it is up; not called when the stop came first.
 * @throws what `start` throws.
 */
export async function runUntilStopped<T extends Running>(options: {
  start: () => Promise<T>;
  onReady: (running: T) => void;
  log: Log;
  exitWithParent: boolean;
}): Promise<void> {
  const { log } = options;
  const asked = listen(options.exitWithParent, log);
  try {
    const running = await options.start();
    if (!asked.already()) {
      options.onReady(running);
    }
    await asked.stop;
    const overdue = setTimeout(() => {
      log.error({ waitedMs: STOP_MS }, 'the stop took too long; ending anyway');
      process.exit(1);
    }, STOP_MS);
    await running.stop();
    clearTimeout(overdue);
  } finally {
    asked.end();
  }
}

function listen(exitWithParent: boolean, log: Log) {
  let asked: string | null = null;
  let resolve = () => {};
  const stop = new Promise<void>((done) => {
    resolve = done;
  });
  const onSignal = (signal: NodeJS.Signals) => {
    if (asked !== null) {
      log.warn({ signal }, 'asked twice; ending at once');
      process.exit(1);
    }
    asked = signal;
    log.debug({ signal }, 'stopping');
    resolve();
  };
  const onParentGone = () => {
    // Not a second request: a parent that stops us by signal closes the pipe as well.
    asked ??= 'parent gone';
    resolve();
  };
  for (const signal of SIGNALS) {
    process.on(signal, onSignal);
  }
  if (exitWithParent) {
    // A broken pipe may close without an end; a file such as /dev/null ends without a close.
    for (const event of ['end', 'close', 'error']) {
      process.stdin.once(event, onParentGone);
    }
    process.stdin.resume();
  }
  return {
    stop,
    already: () => asked !== null,
    end() {
      for (const signal of SIGNALS) {
        process.off(signal, onSignal);
      }
      if (exitWithParent) {
        process.stdin.pause();
      }
    },
  };
}
