import { setTimeout as sleep } from 'node:timers/promises';

/** What BullMQ's queues and workers have in common here. */
type Startable = { waitUntilReady(): Promise<unknown>; close(): Promise<void> };

/** Wait before another start. */
const RESTART_MS = 500;

/**
 * Keeps something of BullMQ's that is made anew as long as it has not become ready: BullMQ remembers the promise of its
 * first connection for ever, also when Postgres ended that connection. A queue would stay deaf until the process
 * restarts; a worker that runs on it would ask again and again without ever letting the event loop turn.
 *
 * @param onReady what may start only now.
 */
export function restarting<T extends Startable>(
  make: () => T,
  onReady: (ready: T) => void = () => undefined,
): { current(): T; end(): void } {
  let current = make();
  let ended = false;
  const watch = async (): Promise<void> => {
    while (!ended) {
      const mine = current;
      try {
        await mine.waitUntilReady();
        if (!ended) {
          onReady(mine);
        }
        return;
      } catch {
        await sleep(RESTART_MS, undefined, { ref: false });
      }
      if (!ended) {
        current = make();
        mine.close().catch(() => undefined);
      }
    }
  };
  watch().catch(() => undefined);
  return {
    current: () => current,
    end() {
      ended = true;
    },
  };
}
