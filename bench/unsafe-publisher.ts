/** Adds the jobs of a round, in the batches that Countersign's relay uses. The counterpart of the relay's process. */
import { answerCalls } from '../lab/answer.ts';
import { type Address, openUnsafeQueue, type UnsafeQueue } from './unsafe-queue.ts';

const BATCH = 200;

let queue: UnsafeQueue | null = null;

answerCalls(
  {
    open(address: Address): void {
      queue = openUnsafeQueue(address);
    },
    async publish(ids: string[]): Promise<void> {
      for (let from = 0; from < ids.length; from += BATCH) {
        await queue?.add(ids.slice(from, from + BATCH));
      }
    },
  },
  async () => queue?.close(),
);
