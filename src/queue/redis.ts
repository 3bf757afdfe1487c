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

/**
 * Refuses a Redis that may throw our keys away while the process is healthy. Truth would survive it (I9), but half a
 * job is an endless source of noise.
 *
 * @throws REDIS_MISCONFIGURED naming the eviction policy. @throws REDIS_UNAVAILABLE within 5 seconds.
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
    const memory = await redis.info('memory');
    const policy = /maxmemory_policy:(\S+)/.exec(memory)?.[1] ?? 'unknown';
    if (policy !== 'noeviction' && policy !== 'unknown') {
      throw new CountersignError(
        'REDIS_MISCONFIGURED',
        `Redis has maxmemory-policy ${policy} and may drop jobs; set it to noeviction.`,
        {
          details: { policy },
        },
      );
    }
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
