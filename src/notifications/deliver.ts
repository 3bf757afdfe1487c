import { randomUUID } from 'node:crypto';
import type { Log } from '../log.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import type { Notification, NotificationSink } from './notification.ts';

export type NotifyCounts = { claimed: number; delivered: number; failed: number };

/** A receiver that takes longer than this has not received it. */
const DEADLINE_MS = 5_000;
/** Longer than the deadline and two statements, so that a healthy notifier's claim never lapses under it. */
const CLAIM_MS = 30_000;
const RETRY_FIRST_MS = 1_000;
const RETRY_MOST_MS = 300_000;

type Row = Omit<Notification, 'run' | 'action' | 'approval' | 'at'> & {
  run_id: string;
  action_id: string | null;
  approval_id: string | null;
  at: Date;
};

/** One bounded pass: claim due notifications, alerts first, deliver them side by side, mark what became of each. */
export async function notifyOnce(
  db: Database,
  sink: NotificationSink,
  log: Log,
  options: { limit: number; claimMs?: number; deadlineMs?: number; retryMs?: number },
): Promise<NotifyCounts> {
  const token = randomUUID();
  const rows = await callFunction<Row>(db, 'claim_notifications', [
    options.limit,
    options.claimMs ?? CLAIM_MS,
    token,
  ]);
  const delivered: string[] = [];
  const failed: string[] = [];
  await Promise.all(
    rows.map(async (row) => {
      try {
        await within(options.deadlineMs ?? DEADLINE_MS, (signal) => sink(asNotification(row), signal));
        delivered.push(row.id);
      } catch (error) {
        failed.push(row.id);
        log.warn({ notification: row.id, kind: row.kind, err: error }, 'a notification was not delivered');
      }
    }),
  );
  if (delivered.length > 0) {
    await callFunction(db, 'mark_notifications_delivered', [delivered, token]);
  }
  if (failed.length > 0) {
    await callFunction(db, 'mark_notifications_failed', [
      failed,
      token,
      options.retryMs ?? RETRY_FIRST_MS,
      RETRY_MOST_MS,
    ]);
  }
  return { claimed: rows.length, delivered: delivered.length, failed: failed.length };
}

function asNotification({ run_id, action_id, approval_id, at, ...row }: Row): Notification {
  return { ...row, run: run_id, action: action_id, approval: approval_id, at: at.toISOString() };
}

/** A sink that forgets its signal must not keep the pass from its other deliveries. */
async function within(ms: number, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const stop = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      const late = new Error(`no answer within ${ms} ms`);
      reject(late);
      stop.abort(late);
    }, ms);
  });
  try {
    await Promise.race([work(stop.signal), deadline]);
  } finally {
    clearTimeout(timer);
  }
}
