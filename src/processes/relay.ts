import type { Log } from '../log.ts';
import { OUTBOX_CHANNEL, relayOnce } from '../outbox/index.ts';
import { assertSchema, listen, openDatabase } from '../postgres/index.ts';
import { assertRedisSafe, openResumeQueue } from '../queue/index.ts';
import { stopOnce } from '../stop-once.ts';
import { type Running, runLoop } from './loop.ts';

export type RelayOptions = {
  databaseUrl: string;
  redisUrl: string | null;
  /** Name of the fleet's queue. Fleets that share a Redis database need different ones. Default `countersign`. */
  queue?: string;
  log: Log;
  /** Poll interval while there is nothing to send: how late a resume may be whose nudge was lost. Default 100 ms. */
  idleMs?: number;
  /** Rows per pass. Default 200. */
  batch?: number;
  /** How long a row stays claimed by a relay that has died. Default 15 s: longer than a publish may take. */
  claimMs?: number;
};

/** Publishes outbox rows until stopped. */
export async function runRelay(options: RelayOptions): Promise<Running> {
  const onError = (error: Error) => options.log.debug({ err: error }, 'connection trouble');
  const db = openDatabase({
    url: options.databaseUrl,
    role: 'countersign_relay',
    max: 3,
    name: 'countersign relay',
    onError,
  });
  try {
    await assertSchema(db);
    if (options.redisUrl !== null) {
      await assertRedisSafe(options.redisUrl);
    }
  } catch (error) {
    await db.close();
    throw error;
  }
  const queue = openResumeQueue({
    redisUrl: options.redisUrl,
    postgresUrl: options.databaseUrl,
    name: options.queue,
    onError,
  });
  const loop = runLoop({
    name: 'relay',
    log: options.log,
    idleMs: options.idleMs ?? 100,
    pass: async () => {
      const { batch: limit = 200, claimMs } = options;
      return (
        await relayOnce(db, queue, options.log, { limit, ...(claimMs === undefined ? {} : { claimMs }) })
      ).sent;
    },
  });
  const listening = listen({
    url: options.databaseUrl,
    channel: OUTBOX_CHANNEL,
    name: 'countersign relay',
    onNotification: loop.wake,
  });
  return {
    stop: stopOnce(async () => {
      await listening.close();
      await loop.stop();
      await queue.close();
      await db.close();
    }),
  };
}
