import { CountersignError } from '../errors.ts';

export type Interruption = {
  readonly signal: AbortSignal;
  /** Stops listening. */
  end(): void;
};

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Turns the first Ctrl-C, SIGTERM or closed terminal into an abort (whose reason is INTERRUPTED), and the second into
 * `atOnce` and the end of this process.
 */
export function listenForInterruption(atOnce: () => void): Interruption {
  const asked = new AbortController();
  const onSignal = (signal: NodeJS.Signals) => {
    if (asked.signal.aborted) {
      atOnce();
      process.exit(130);
    }
    asked.abort(
      new CountersignError('INTERRUPTED', 'Interrupted; everything was stopped.', { details: { signal } }),
    );
  };
  for (const name of SIGNALS) {
    process.on(name, onSignal);
  }
  return {
    signal: asked.signal,
    end() {
      for (const name of SIGNALS) {
        process.off(name, onSignal);
      }
    },
  };
}

/** The work's result, or the interruption, whichever comes first. What the work does afterwards is dropped. */
export async function orInterrupted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  work.catch(() => undefined);
  signal.throwIfAborted();
  let onAbort = () => {};
  const interrupted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([work, interrupted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
