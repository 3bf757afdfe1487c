/** Room of one's own on somebody's Redis. */
import { openRedis } from '../src/queue/index.ts';
import type { Cleanup } from './cleanup.ts';

/** What a Redis has unless it was told otherwise. */
const DATABASES = 16;
const KEYS = 'countersign:*';

/**
 * Finds a database of the server that holds no keys, so that the lab's jobs never meet a real fleet's; the cleanup
 * removes what the lab wrote there. A URL that names a database (`…/3`) is taken at its word, and must be empty too.
 *
 * @throws when no database is empty.
 */
export async function emptyRedisDatabase(cleanup: Cleanup, url: string): Promise<string> {
  const asked = new URL(url);
  const named = asked.pathname.replace('/', '');
  const candidates = named === '' ? Array.from({ length: DATABASES }, (_, index) => String(index)) : [named];
  for (const index of candidates) {
    asked.pathname = `/${index}`;
    const candidate = asked.href;
    if ((await withRedis(candidate, (redis) => redis.dbsize())) === 0) {
      cleanup.defer(() =>
        withRedis(candidate, async (redis) => {
          const keys = await redis.keys(KEYS);
          return keys.length === 0 ? 0 : redis.del(keys);
        }),
      );
      return candidate;
    }
  }
  const where = named === '' ? 'No database of this Redis is empty' : `Redis database ${named} is not empty`;
  throw new Error(`${where}; name an empty one in the URL, such as redis://host:6379/5.`);
}

async function withRedis<T>(
  url: string,
  work: (redis: ReturnType<typeof openRedis>) => Promise<T>,
): Promise<T> {
  let failure: Error | null = null;
  // `blocking`: commands wait for the connection instead of failing before it is there.
  const redis = openRedis(
    url,
    (error) => {
      failure = error;
    },
    'blocking',
  );
  const timer = setTimeout(() => redis.disconnect(), 5_000);
  try {
    return await work(redis);
  } catch (error) {
    throw new Error('Redis did not answer; check the URL and the server.', { cause: failure ?? error });
  } finally {
    clearTimeout(timer);
    redis.disconnect();
  }
}
