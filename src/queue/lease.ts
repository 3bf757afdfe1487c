import { createHash } from 'node:crypto';
import { gate } from '../failpoints.ts';
import { DEFAULT_QUEUE } from '../queue-name.ts';
import type { RedisClient } from './redis.ts';

/**
 * The right to work on a run, advised in Redis: it makes double work rare and decides nothing. The hold in Postgres
 * does. `unknown`: Redis gave no answer in time, which changes nothing.
 */
export type Leases = {
  acquire(
    tenant: string,
    runId: string,
    holder: string,
    ttlMs: number,
  ): Promise<'acquired' | 'busy' | 'unknown'>;
  /** Takes it from whoever has it: Postgres has just said that the run is ours. */
  seize(tenant: string, runId: string, holder: string, ttlMs: number): Promise<void>;
  /** Extends it if it is still the holder's. */
  renew(tenant: string, runId: string, holder: string, ttlMs: number): Promise<void>;
  /** Ends it if it is still the holder's: never somebody else's. */
  release(tenant: string, runId: string, holder: string): Promise<void>;
};

/** KEYS[1] lease, ARGV[1] holder, ARGV[2] ttl in ms. Returns 1 when extended, 0 when it is not the holder's. */
const RENEW =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
/** KEYS[1] lease, ARGV[1] holder. Returns 1 when ended, 0 when it is not the holder's. */
const RELEASE =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/** How long a claim waits for Redis's advice before it goes on without. */
const ADVICE_MS = 250;

/** @param name the queue's: leases are as separate as the jobs. */
export function redisLeases(redis: RedisClient, name = DEFAULT_QUEUE): Leases {
  return {
    async acquire(tenant, runId, holder, ttlMs) {
      const answer = await withinMs('lease.acquire', () =>
        redis.set(leaseKey(name, tenant, runId), holder, 'PX', ttlMs, 'NX'),
      );
      return answer === undefined ? 'unknown' : answer === 'OK' ? 'acquired' : 'busy';
    },
    async seize(tenant, runId, holder, ttlMs) {
      await withinMs('lease.seize', () => redis.set(leaseKey(name, tenant, runId), holder, 'PX', ttlMs));
    },
    async renew(tenant, runId, holder, ttlMs) {
      await withinMs('lease.renew', () => redis.eval(RENEW, 1, leaseKey(name, tenant, runId), holder, ttlMs));
    },
    async release(tenant, runId, holder) {
      await withinMs('lease.release', () => redis.eval(RELEASE, 1, leaseKey(name, tenant, runId), holder));
    },
  };
}

/** Without Redis there is no advice; the claim goes straight to Postgres. */
export const noLeases: Leases = {
  acquire: async () => 'unknown',
  seize: async () => undefined,
  renew: async () => undefined,
  release: async () => undefined,
};

/** A tenant's name may hold anything, so the key holds its digest. */
function leaseKey(name: string, tenant: string, runId: string): string {
  const owner = createHash('sha256').update(tenant).digest('base64url').slice(0, 16);
  return `${name}:lease:${owner}:${runId}`;
}

/** The answer, or undefined when Redis failed or took too long. A late answer is dropped. */
async function withinMs<T>(operation: string, ask: () => Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ADVICE_MS);
  });
  try {
    return await Promise.race([gate('queue', operation, ask).catch(() => undefined), late]);
  } finally {
    clearTimeout(timer);
  }
}
