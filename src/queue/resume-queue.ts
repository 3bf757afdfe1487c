import {
  createPostgresBackend,
  DelayedError,
  Queue,
  type QueueOptions,
  UnrecoverableError,
  Worker,
  type WorkerOptions,
  withBackend,
} from 'bullmq';
import { z } from 'zod';
import { CountersignError } from '../errors.ts';
import { gate } from '../failpoints.ts';
import { SteadyClient } from '../postgres/index.ts';
import { DEFAULT_QUEUE } from '../queue-name.ts';
import { openRedis } from './redis.ts';
import { restarting } from './restarting.ts';

/** A job's whole data: which run to look at, and the wake that announced it. */
export type ResumeJob = { tenant: string; runId: string; wake: number };

/** What became of a delivery: done with (acknowledge), or come back after `ms`. */
export type Verdict = { kind: 'done' } | { kind: 'delay'; ms: number };

export type Consumer = {
  /** Stops taking jobs and waits for those under way, `ms` at most: a queue whose Redis is gone never closes by itself. */
  close(ms: number): Promise<void>;
};

export type ResumeQueue = {
  readonly backend: 'redis' | 'postgres';
  /** Publishes under its own deadline; a late-settling add is harmless, for the job's id is the outbox row's. */
  publish(rows: readonly { id: string; job: ResumeJob }[]): Promise<void>;
  consume(handler: (job: ResumeJob, jobId: string) => Promise<Verdict>, options: ConsumeOptions): Consumer;
  /** Jobs waiting or delayed, for operators and tests. */
  depth(): Promise<number>;
  close(): Promise<void>;
};

export type ConsumeOptions = {
  concurrency: number;
  /** How long BullMQ waits for a silent consumer before it hands its job to another. Default 30 s. */
  lockMs?: number | undefined;
  onMalformed: (jobId: string) => void;
  onError: (error: Error) => void;
};

const QUEUE = 'countersign-resume';
/** `queue.add` never settles while Redis is away (measured, bullmq 6.7.0), so a publish has its own deadline. */
const PUBLISH_MS = 5_000;
/** Renewed by BullMQ while the process lives. Only a hint: the hold in Postgres decides. */
const LOCK_MS = 30_000;

const payload = z.strictObject({
  tenant: z.string().min(1).max(512),
  runId: z.uuid(),
  wake: z.number().int().nonnegative(),
});

/**
 * Opens the queue on Redis when `redisUrl` is given, else on BullMQ's Postgres backend in schema `bullmq` of
 * `postgresUrl` (made on first use).
 *
 * BullMQ runs with one attempt and a high stall limit: attempts are counted in Postgres, and a stalled job that
 * BullMQ gives up on would be a run that nobody looks at until the next sweep.
 */
export function openResumeQueue(options: {
  redisUrl: string | null;
  postgresUrl: string;
  /** What the keys in Redis begin with: fleets of different names do not see each other's jobs. */
  name?: string | undefined;
  onError: (error: Error) => void;
}): ResumeQueue {
  const redis = options.redisUrl === null ? null : openRedis(options.redisUrl, options.onError);
  const shared = { prefix: options.name ?? DEFAULT_QUEUE };
  const queueOptions = {
    ...shared,
    defaultJobOptions: { attempts: 1, removeOnComplete: true, removeOnFail: { count: 1_000 } },
    streams: { events: { maxLen: 100 } },
  };
  const postgres = {
    connectionString: options.postgresUrl,
    application_name: 'countersign queue',
    migrate: true,
    Client: SteadyClient,
  };
  const onPostgres = withBackend(createPostgresBackend);
  const queues = restarting(() => {
    const made =
      redis === null
        ? new onPostgres.Queue(QUEUE, { ...queueOptions, connection: postgres })
        : new Queue(QUEUE, { ...queueOptions, connection: redis } as QueueOptions);
    return made.on('error', options.onError);
  });

  return {
    backend: redis === null ? 'postgres' : 'redis',
    async publish(rows) {
      const jobs = rows.map(({ id, job }) => ({ name: 'resume', data: job, opts: { jobId: id } }));
      await beforeDeadline(
        gate('queue', 'publish', () => queues.current().addBulk(jobs)),
        PUBLISH_MS,
      );
    },
    consume(handler, consumeOptions) {
      const workerOptions = {
        ...shared,
        autorun: false,
        concurrency: consumeOptions.concurrency,
        maxStalledCount: 1_000,
        // Redis refuses a fraction of a millisecond.
        stalledInterval: Math.ceil((consumeOptions.lockMs ?? LOCK_MS) / 6),
        lockDuration: consumeOptions.lockMs ?? LOCK_MS,
        removeOnComplete: { count: 0 },
        removeOnFail: { count: 1_000 },
      };
      const process = processor(handler, consumeOptions.onMalformed);
      const connection =
        options.redisUrl === null ? null : openRedis(options.redisUrl, consumeOptions.onError, 'blocking');
      const makeWorker = () => {
        const made =
          connection === null
            ? new onPostgres.Worker(QUEUE, process, { ...workerOptions, connection: postgres })
            : new Worker(QUEUE, process, { ...workerOptions, connection } as WorkerOptions);
        made.on('completed', () => {
          gate('queue', 'acknowledge', async () => undefined).catch(consumeOptions.onError);
        });
        return made.on('error', consumeOptions.onError);
      };
      const workers = restarting(makeWorker, (worker) => {
        worker.run().catch(consumeOptions.onError);
      });
      return {
        async close(ms) {
          workers.end();
          await closeWithin(
            () => workers.current().close(),
            () => workers.current().close(true),
            ms,
          );
          // BullMQ ends the connections that it opened, and leaves the one that it was given.
          connection?.disconnect();
        },
      };
    },
    async depth() {
      const counts = await queues.current().getJobCounts('waiting', 'delayed', 'active');
      return Object.values(counts).reduce((sum, count) => sum + count, 0);
    },
    async close() {
      queues.end();
      await closeWithin(
        () => queues.current().close(),
        () => queues.current().disconnect(),
        2_000,
      );
      redis?.disconnect();
    },
  };
}

type AnyJob = {
  id?: string | undefined;
  data: unknown;
  moveToDelayed(timestamp: number, token?: string): Promise<void>;
};

function processor(
  handler: (job: ResumeJob, jobId: string) => Promise<Verdict>,
  onMalformed: (jobId: string) => void,
) {
  return async (job: AnyJob, token?: string): Promise<void> => {
    const parsed = payload.safeParse(job.data);
    if (!parsed.success) {
      // Half a job (its hash was evicted) or somebody else's: never a success. The run's truth is in Postgres.
      onMalformed(job.id ?? '');
      throw new UnrecoverableError('JOB_MALFORMED');
    }
    const verdict = await gate('queue', 'deliver', () => handler(parsed.data, job.id ?? ''));
    if (verdict.kind === 'delay') {
      const { ms } = verdict;
      await gate('queue', 'postpone', () => job.moveToDelayed(Date.now() + ms, token));
      throw new DelayedError();
    }
  };
}

async function beforeDeadline(work: Promise<unknown>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => reject(new CountersignError('REDIS_UNAVAILABLE', `The queue did not answer within ${ms} ms.`)),
      ms,
    );
  });
  work.catch(() => undefined);
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Closes politely, then by force; resolves in any case. */
async function closeWithin(
  polite: () => Promise<unknown>,
  force: () => Promise<unknown>,
  ms: number,
): Promise<void> {
  const closed = await Promise.race([
    polite().then(
      () => true,
      () => true,
    ),
    new Promise<false>((resolve) => setTimeout(() => resolve(false), ms).unref()),
  ]);
  if (!closed) {
    await Promise.race([
      force().catch(() => undefined),
      new Promise((resolve) => setTimeout(resolve, 500).unref()),
    ]);
  }
}
