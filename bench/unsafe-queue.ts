/** BullMQ as a user without Countersign would use it, on the same backend and with the same housekeeping options. */
import {
  createPostgresBackend,
  Queue,
  type QueueOptions,
  Worker,
  type WorkerOptions,
  withBackend,
} from 'bullmq';
import { openRedis } from '../src/queue/index.ts';

export type Address = { databaseUrl: string; redisUrl: string | null };

/** Under the same key pattern as Countersign's, so that one clean-up finds both. */
const OPTIONS = { prefix: 'countersign:bench-unsafe' };
const NAME = 'unsafe-resume';
const onPostgres = withBackend(createPostgresBackend);
const ignore = (): void => undefined;

export type UnsafeQueue = {
  add(ids: readonly string[]): Promise<void>;
  close(): Promise<void>;
};

export function openUnsafeQueue({ databaseUrl, redisUrl }: Address): UnsafeQueue {
  const options = {
    ...OPTIONS,
    defaultJobOptions: { attempts: 1, removeOnComplete: true, removeOnFail: { count: 1_000 } },
    streams: { events: { maxLen: 100 } },
  };
  const redis = redisUrl === null ? null : openRedis(redisUrl, ignore);
  const queue =
    redis === null
      ? new onPostgres.Queue(NAME, {
          ...options,
          connection: { connectionString: databaseUrl, migrate: true },
        })
      : new Queue(NAME, { ...options, connection: redis } as QueueOptions);
  queue.on('error', ignore);
  return {
    async add(ids) {
      const [first] = ids;
      if (ids.length === 1 && first !== undefined) {
        await queue.add('resume', { id: first });
      } else {
        await queue.addBulk(ids.map((id) => ({ name: 'resume', data: { id } })));
      }
    },
    async close() {
      await queue.close();
      redis?.disconnect();
    },
  };
}

export function openUnsafeWorker(
  { databaseUrl, redisUrl }: Address,
  concurrency: number,
  work: (id: string) => Promise<void>,
): { close(): Promise<void> } {
  const options = { ...OPTIONS, concurrency, removeOnComplete: { count: 0 }, removeOnFail: { count: 1_000 } };
  const process = async (job: { data: unknown }): Promise<void> => work((job.data as { id: string }).id);
  const redis = redisUrl === null ? null : openRedis(redisUrl, ignore, 'blocking');
  const worker =
    redis === null
      ? new onPostgres.Worker(NAME, process, {
          ...options,
          connection: { connectionString: databaseUrl, migrate: true },
        })
      : new Worker(NAME, process, { ...options, connection: redis } as WorkerOptions);
  worker.on('error', ignore);
  worker.on('failed', (_job, error) => console.error('unsafe worker:', error));
  return {
    async close() {
      await worker.close();
      redis?.disconnect();
    },
  };
}
