/** What a round needs of a side: the same for both. */
import type { Child } from '../lab/child.ts';
import type { Cleanup } from '../lab/cleanup.ts';

export type FleetOptions = {
  databaseUrl: string;
  redisUrl: string | null;
  workers: number;
  concurrency: number;
};

export type Fleet = {
  workers: Child[];
  /** The process that puts jobs on the queue: Countersign's relay, or the unsafe side's producer. */
  publisher: Child;
  /** Starts one run per ref and gets them on the way to their pause. */
  start(refs: readonly string[]): Promise<void>;
  /** Makes every paused run of the refs ready to be published, with nothing published yet. */
  prepare(refs: readonly string[]): Promise<void>;
  /** Lets the publisher publish what was prepared. */
  publish(): Promise<void>;
  /** One person's yes, with its job on the way afterwards. */
  decide(ref: string): Promise<void>;
  /** Characters of one paused run's serialised state. */
  stateSize(ref: string): Promise<number>;
};

export type OpenFleet = (cleanup: Cleanup, options: FleetOptions) => Promise<Fleet>;

/** Runs `work` for every item, `width` at a time. */
export async function inLanes<T>(
  items: readonly T[],
  width: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let item = items[next]; item !== undefined; item = items[next]) {
      next += 1;
      await work(item);
    }
  };
  await Promise.all(Array.from({ length: width }, lane));
}
