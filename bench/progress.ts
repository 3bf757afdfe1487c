/** How far a worker is, told to the parent when it changes: cheaper than asking the database, and the same for both. */
import { tellParent } from '../lab/answer.ts';
import type { Child } from '../lab/child.ts';
import { monotonicMs } from './effects.ts';

export type Progress = { paused: number; completed: number; atMs: number };

/** The error of the measured end of a round; small against rounds of seconds. */
const TELL_MS = 10;
const STUCK_MS = 60_000;

/** Child's side. */
export function tellProgress(read: () => { paused: number; completed: number }): void {
  let told = '';
  setInterval(() => {
    const { paused, completed } = read();
    const now = `${paused}/${completed}`;
    if (now !== told) {
      told = now;
      tellParent({ paused, completed, atMs: monotonicMs() } satisfies Progress);
    }
  }, TELL_MS).unref();
}

export type Watch = {
  /**
   * Resolves with the time at which all workers together had reached it.
   *
   * @throws when a process ended, or nothing moves for a minute.
   */
  until(what: 'paused' | 'completed', count: number): Promise<number>;
};

/** Parent's side. @param others processes without which the workers would wait for ever. */
export function watchProgress(workers: readonly Child[], others: readonly Child[]): Watch {
  const latest = workers.map((): Progress => ({ paused: 0, completed: 0, atMs: 0 }));
  let failure: string | null = null;
  let changed = (): void => undefined;
  workers.forEach((worker, index) => {
    worker.onNews((news) => {
      latest[index] = news as Progress;
      changed();
    });
  });
  for (const { ended } of [...workers, ...others]) {
    void ended.then((how) => {
      failure = how;
      changed();
    });
  }
  const sum = (what: 'paused' | 'completed') => latest.reduce((total, progress) => total + progress[what], 0);
  const change = (): Promise<boolean> =>
    new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), STUCK_MS);
      changed = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  return {
    async until(what, count) {
      while (sum(what) < count) {
        const moved = await change();
        if (failure !== null || !moved) {
          const why = failure ?? `and none for ${STUCK_MS} ms`;
          throw new Error(`${sum(what)} of ${count} runs ${what}: ${why}`);
        }
      }
      return Math.max(...latest.map(({ atMs }) => atMs));
    },
  };
}
