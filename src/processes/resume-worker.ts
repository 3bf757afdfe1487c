import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { isCountersignError } from '../errors.ts';
import { type Hold, HoldKeeper } from '../leases/index.ts';
import type { Log } from '../log.ts';
import { assertDurable, assertSchema, callFunction, type Database, openDatabase } from '../postgres/index.ts';
import { assertRedisSafe, noLeases, openRedis, openResumeQueue, redisLeases } from '../queue/index.ts';
import {
  carryDelivery,
  type DeliveryCounts,
  newCounts,
  unparkOnce,
  type WorkerEnvironment,
} from '../runs/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { stopOnce } from '../stop-once.ts';
import { announcement, buildRegistry, type Workflow } from '../workflows/index.ts';
import type { Running } from './loop.ts';

export type ResumeWorkerOptions = {
  databaseUrl: string;
  /** Null: BullMQ's Postgres backend and no leases. */
  redisUrl: string | null;
  /** As the relay's. */
  queue?: string;
  keys: KeyRing;
  workflows: readonly Workflow[];
  log: Log;
  /** Runs carried at once. Default 8. */
  concurrency?: number;
  /** How long a hold lasts without a heartbeat. Default 30 s. */
  ttlMs?: number;
  /** Claims without progress before a run is dead-lettered. Default 5. */
  maxAttempts?: number;
  /** Longest segment; past it the model calls are aborted and the hold is not trusted. Default 10 min. */
  maxSegmentMs?: number;
  /** First wait before a failed segment is run again; doubles. Default 1 s. */
  retryDelayMs?: number;
  /** How long the queue waits for a silent worker before it hands its job to another. Default 30 s. */
  lockMs?: number;
  /** How long a stop waits for segments under way before it hands their runs back. Default 10 s. */
  drainMs?: number;
  /** Tests only: accept a Postgres that may forget. */
  allowForgetful?: boolean;
};

export type ResumeWorker = Running & {
  readonly id: string;
  readonly counts: Readonly<DeliveryCounts>;
};

/** Carries runs until stopped. Stateless: run as many as you like, anywhere, and kill any of them. */
export async function runResumeWorker(options: ResumeWorkerOptions): Promise<ResumeWorker> {
  const { log, keys, redisUrl } = options;
  const concurrency = options.concurrency ?? 8;
  const ttlMs = options.ttlMs ?? 30_000;
  const registry = await buildRegistry(options.workflows);
  const capabilities = announcement(registry);
  const onError = (error: Error) => log.debug({ err: error }, 'connection trouble');
  const db = openDatabase({
    url: options.databaseUrl,
    role: 'countersign_worker',
    // A `transactional` action's statements run on these connections, and have to end within it.
    noAnswerMs: 60_000,
    max: Math.min(concurrency + 2, 10),
    name: 'countersign worker',
    onError,
  });
  // Effects that take all of the above must not keep the heartbeat waiting.
  const pulse = openDatabase({
    url: options.databaseUrl,
    role: 'countersign_worker',
    max: 2,
    name: 'countersign heartbeat',
    onError,
  });
  const id = randomUUID();
  try {
    await assertSchema(db);
    await assertDurable(db, options.allowForgetful);
    if (redisUrl !== null) {
      await assertRedisSafe(redisUrl);
    }
    await callFunction(db, 'announce_worker', [
      id,
      'resume',
      `${hostname()}/${process.pid}`,
      capabilities.workflows,
      capabilities.stateSchemas,
      capabilities.tools,
      ttlMs * 2,
    ]);
  } catch (error) {
    await Promise.all([db.close(), pulse.close()]);
    throw error;
  }
  const leaseRedis = redisUrl === null ? null : openRedis(redisUrl, onError, 'batched');
  const leases = leaseRedis === null ? noLeases : redisLeases(leaseRedis, options.queue);
  const holds = new HoldKeeper({ db: pulse, leases, log, workerId: id, ttlMs });
  const env: WorkerEnvironment = {
    db,
    keys,
    leases,
    holds,
    registry,
    capabilities,
    log,
    workerId: id,
    counts: newCounts(),
    settings: {
      ttlMs,
      maxAttempts: options.maxAttempts ?? 5,
      maxSegmentMs: options.maxSegmentMs ?? 600_000,
      retryDelayMs: options.retryDelayMs ?? 1_000,
    },
  };
  const queue = openResumeQueue({ redisUrl, postgresUrl: options.databaseUrl, name: options.queue, onError });
  const consumer = queue.consume((job) => deliver(env, job), {
    concurrency,
    lockMs: options.lockMs,
    onError,
    onMalformed: (jobId) => {
      env.counts.malformed += 1;
      log.warn(
        { job: jobId, code: 'JOB_MALFORMED' },
        'a delivery had no usable payload; its run is found by the sweep',
      );
    },
  });
  unparkOnce(db, { limit: 1_000, workflows: capabilities.workflows }).catch((error: unknown) =>
    log.warn({ err: error }, 'unparking failed; the sweep does it'),
  );
  log.info(
    { worker: id, workflows: capabilities.workflows, backend: queue.backend, concurrency },
    'resume worker ready',
  );
  return {
    id,
    counts: env.counts,
    stop: stopOnce(async () => {
      await consumer.close(options.drainMs ?? 10_000);
      await holds.stop();
      await Promise.all(holds.holds().map((hold) => handBack(db, hold)));
      await callFunction(db, 'stop_worker', [id]).catch(() => undefined);
      await queue.close();
      leaseRedis?.disconnect();
      await Promise.all([db.close(), pulse.close()]);
      log.info({ worker: id, counts: env.counts }, 'resume worker stopped');
    }),
  };
}

/** An answer that did not come is no answer: the job comes back, and the hold, if there is one, runs out. */
async function deliver(
  env: WorkerEnvironment,
  job: Parameters<typeof carryDelivery>[1],
): ReturnType<typeof carryDelivery> {
  try {
    return await carryDelivery(env, job);
  } catch (error) {
    env.log.warn({ run: job.runId, err: error }, 'a delivery was not carried');
    if (isCountersignError(error) && error.retry) {
      return { kind: 'delay', ms: 1_000 };
    }
    throw error;
  }
}

/** At the end of a drain: give the hold back, so that the next worker need not wait for it to run out. */
async function handBack(db: Database, hold: Hold): Promise<void> {
  hold.lost.abort(new Error('STOPPING'));
  await callFunction(db, 'release_run', [
    hold.tenant,
    hold.runId,
    hold.epoch,
    'WORKER_STOPPED',
    0,
    null,
    0,
    true,
  ]).catch(() => undefined);
}
