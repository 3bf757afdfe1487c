/**
 * The edge to BullMQ and Redis, and the only importer of `bullmq` and `ioredis`.
 *
 * The queue says *when* to look at a run; it never says what is true of it. Jobs carry ids only, may arrive twice,
 * late, out of order or never, and their counters, locks and failed sets mean nothing here (I8, I9). With `REDIS_URL`
 * BullMQ runs on Redis and claims are advised by a Redis lease; without it on BullMQ's own Postgres backend, with no
 * lease. Above this folder there is one code path.
 * A crash here leaves an unsent outbox row or an unacknowledged job: both come again.
 */
export { countForeignKeys, forgetJobs } from './forget.ts';
export { type Leases, noLeases, redisLeases } from './lease.ts';
export { prepareQueue } from './prepare.ts';
export { assertRedisSafe, openRedis, type RedisClient } from './redis.ts';
export {
  type Consumer,
  openResumeQueue,
  type ResumeJob,
  type ResumeQueue,
  type Verdict,
} from './resume-queue.ts';
