import { Redis } from 'ioredis';
import { CountersignError } from '../errors.ts';

export type RedisClient = Redis;

/**
 * Opens a connection that fails fast: commands do not queue up while Redis is away, so a caller's own fallback runs.
 *
 * @param use `blocking` for BullMQ's workers, whose blocking reads must wait without a limit; `batched` for many small
 *   commands at once, which then share a write.
 */
export function openRedis(
  url: string,
  onError: (error: Error) => void,
  use: 'plain' | 'blocking' | 'batched' = 'plain',
): Redis {
  const blocking = use === 'blocking';
  const redis = new Redis(url, {
    maxRetriesPerRequest: blocking ? null : 1,
    enableOfflineQueue: blocking,
    enableAutoPipelining: use === 'batched',
    lazyConnect: false,
    connectTimeout: 5_000,
    retryStrategy: (times) => Math.min(2_000, 50 * times),
  });
  redis.on('error', onError);
  return redis;
}

/** The oldest Redis that BullMQ recommends. */
const OLDEST = [6, 2] as const;

/**
 * Refuses a Redis that may throw our keys away while the process is healthy, or that is too old for BullMQ. Truth would
 * survive it (I9), but half a job is an endless source of noise.
 *
 * @throws REDIS_MISCONFIGURED naming the eviction policy or the version. @throws REDIS_UNAVAILABLE within 5 seconds.
 */
export async function assertRedisSafe(url: string): Promise<void> {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: 5_000,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  redis.on('error', () => undefined);
  try {
    await redis.connect();
    assertUsable((await redis.info('server')) + (await redis.info('memory')));
  } catch (error) {
    if (error instanceof CountersignError) {
      throw error;
    }
    throw new CountersignError('REDIS_UNAVAILABLE', 'Redis did not answer; check REDIS_URL and the server.', {
      cause: error,
    });
  } finally {
    redis.disconnect();
  }
}

/** @param info the answer to INFO. What it does not say is not held against it: some services hide it. */
export function assertUsable(info: string): void {
  const policy = /maxmemory_policy:(\S+)/.exec(info)?.[1] ?? 'unknown';
  if (policy !== 'noeviction' && policy !== 'unknown') {
    throw new CountersignError(
      'REDIS_MISCONFIGURED',
      `Redis has maxmemory-policy ${policy} and may drop jobs; set it to noeviction.`,
      { details: { policy } },
    );
  }
  const [, version, major, minor] = /redis_version:((\d+)\.(\d+)\S*)/.exec(info) ?? [];
  const age = Number(major) - OLDEST[0] || Number(minor) - OLDEST[1];
  if (age < 0) {
    throw new CountersignError(
      'REDIS_MISCONFIGURED',
      `Redis is version ${version}; the queue needs ${OLDEST.join('.')} or newer.`,
      { details: { version: version ?? '' } },
    );
  }
}
