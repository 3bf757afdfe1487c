import type { Log } from '../log.ts';
import { type NotificationSink, notificationLog, notifyOnce } from '../notifications/index.ts';
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
  /** Where notifications go. Default: the log. */
  notify?: NotificationSink | undefined;
  /** Poll interval while there is nothing to tell. Default 500 ms. */
  notifyIdleMs?: number;
  /** First wait after a receiver refused; doubles up to 5 min. Default 1 s. */
  notifyRetryMs?: number;
};

/** Posted side by side. */
const NOTIFICATIONS = 20;

/** Publishes outbox rows until stopped; beside that, on a connection of its own, tells whoever should hear of it. */
export async function runRelay(options: RelayOptions): Promise<Running> {
  const onError = (error: Error) => options.log.debug({ err: error }, 'connection trouble');
  const db = openDatabase({
    url: options.databaseUrl,
    role: 'countersign_relay',
    max: 3,
    name: 'countersign relay',
    onError,
  });
  // A receiver may be slow, and what it is told must not wait in line with the announcements.
  const notifierDb = openDatabase({
    url: options.databaseUrl,
    role: 'countersign_relay',
    max: 1,
    name: 'countersign notifier',
    onError,
  });
  try {
    await assertSchema(db);
    if (options.redisUrl !== null) {
      await assertRedisSafe(options.redisUrl);
    }
  } catch (error) {
    await db.close();
    await notifierDb.close();
    throw error;
  }
  const queue = openResumeQueue({
    redisUrl: options.redisUrl,
    postgresUrl: options.databaseUrl,
    name: options.queue,
    onError,
  });
  const relay = runLoop({
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
    role: 'countersign_relay',
    channel: OUTBOX_CHANNEL,
    name: 'countersign relay',
    onNotification: relay.wake,
  });
  const sink = options.notify ?? notificationLog(options.log);
  const { notifyRetryMs: retryMs } = options;
  const notifier = runLoop({
    name: 'notify',
    log: options.log,
    idleMs: options.notifyIdleMs ?? 500,
    pass: async () =>
      (
        await notifyOnce(notifierDb, sink, options.log, {
          limit: NOTIFICATIONS,
          ...(retryMs === undefined ? {} : { retryMs }),
        })
      ).delivered,
  });
  return {
    stop: stopOnce(async () => {
      await listening.close();
      await Promise.all([relay.stop(), notifier.stop()]);
      await queue.close();
      await db.close();
      await notifierDb.close();
    }),
  };
}
