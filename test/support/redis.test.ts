import { Redis } from 'ioredis';
import { afterEach, describe, expect, inject, test, vi } from 'vitest';
import { ping, startRedis } from './redis.ts';

const skipReason = inject('redisSkipReason');

describe(skipReason ?? 'Redis for the tests', () => {
  test.skipIf(skipReason !== null)('the shared Redis answers and evicts nothing', async () => {
    const redis = new Redis(inject('redisUrl') ?? '', { maxRetriesPerRequest: 1 });
    try {
      expect(await redis.ping()).toBe('PONG');
      expect(await redis.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'noeviction']);
    } finally {
      redis.disconnect();
    }
  });

  test.skipIf(skipReason !== null || process.env.REDIS_URL)(
    'a Redis started here is gone after stop',
    async () => {
      const redis = await startRedis();
      if ('skipped' in redis) throw new Error(redis.skipped);
      const port = Number(new URL(redis.url).port);
      expect(await ping(port)).toBe(true);
      await redis.stop();
      expect(await ping(port)).toBe(false);
    },
  );
});

describe('a machine without any Redis', () => {
  afterEach(() => {
    vi.unstubAllEnvs();
  });

  const hideEverything = (ci: string): void => {
    for (const [name, value] of Object.entries({ REDIS_URL: '', PATH: '', CI: ci })) vi.stubEnv(name, value);
  };

  test('skips its tests with a reason that names what to install', async () => {
    hideEverything('');
    expect(await startRedis()).toEqual({ skipped: expect.stringContaining('install redis-server') });
  });

  test('fails in CI instead of skipping', async () => {
    hideEverything('true');
    await expect(startRedis()).rejects.toThrow('CI=true forbids skipping');
  });
});
