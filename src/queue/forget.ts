import { SteadyClient } from '../postgres/index.ts';
import { openRedis, type RedisClient } from './redis.ts';

const SCANNED = 1_000;

/**
 * Forgets every job, and with them the leases: on Redis by emptying the one database that the URL names, else by
 * emptying BullMQ's table of jobs. Nothing that matters is lost by it (I9); it exists to show that.
 *
 * @returns how many keys, or jobs, there were.
 */
export async function forgetJobs(place: { redisUrl: string | null; postgresUrl: string }): Promise<number> {
  if (place.redisUrl === null) {
    const client = new SteadyClient({
      connectionString: place.postgresUrl,
      application_name: 'chaos',
    });
    await client.connect();
    try {
      return (await client.query('delete from bullmq.job')).rowCount ?? 0;
    } finally {
      await client.end();
    }
  }
  return withRedis(place.redisUrl, async (redis) => {
    const keys = await redis.dbsize();
    await redis.flushdb();
    return keys;
  });
}

/** How many keys of that Redis database are not of the fleet with this queue: jobs and leases begin with its name. */
export async function countForeignKeys(redisUrl: string, queue: string): Promise<number> {
  return withRedis(redisUrl, async (redis) => {
    let foreign = 0;
    let cursor = '0';
    do {
      const [next, keys] = await redis.scan(cursor, 'COUNT', SCANNED);
      foreign += keys.filter((key) => !key.startsWith(`${queue}:`)).length;
      cursor = next;
    } while (cursor !== '0');
    return foreign;
  });
}

async function withRedis<T>(url: string, work: (redis: RedisClient) => Promise<T>): Promise<T> {
  const redis = openRedis(url, () => undefined, 'blocking');
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}
