import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../log.ts';
import { stopOnce } from '../stop-once.ts';

/** A process part that runs until it is stopped. */
export type Running = {
  /** Stops taking new work, waits for what is under way (bounded), releases what it owns. */
  stop(): Promise<void>;
};

export type Loop = Running & {
  /** Ends the sleep that is under way, or the next one: there may be something to find. */
  wake(): void;
};

/**
 * Repeats one bounded pass for ever. Goes on at once while passes find work, sleeps `idleMs` when one does not, and
 * after an error waits a growing time: an outage is waited out, never a reason to end.
 */
export function runLoop(options: {
  name: string;
  log: Log;
  idleMs: number;
  pass: () => Promise<number>;
}): Loop {
  const stopping = new AbortController();
  let waking = new AbortController();
  const done = (async () => {
    let failures = 0;
    while (!stopping.signal.aborted) {
      let waitMs = options.idleMs;
      try {
        const found = await options.pass();
        failures = 0;
        waitMs = found > 0 ? 0 : options.idleMs;
      } catch (error) {
        failures += 1;
        waitMs = Math.min(10_000, options.idleMs * 2 ** Math.min(failures, 8));
        options.log.warn({ loop: options.name, failures, waitMs, err: error }, 'a pass failed');
      }
      if (waitMs > 0) {
        await sleep(waitMs, undefined, { signal: waking.signal }).catch(() => undefined);
        waking = new AbortController();
      }
    }
  })();
  return {
    wake: () => waking.abort(),
    stop: stopOnce(async () => {
      stopping.abort();
      waking.abort();
      await done;
    }),
  };
}
