import { randomUUID } from 'node:crypto';
import { isCountersignError } from '../errors.ts';
import type { Log } from '../log.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import type { ResumeQueue } from '../queue/index.ts';

export type RelayCounts = { claimed: number; sent: number; failed: number };

/** Longer than a publish may take, so that a healthy relay's claim never lapses under it. */
const CLAIM_MS = 15_000;
/** Row-naming refusals before a row is dead. */
const FAILURE_BUDGET = 5;
const RETRY_MS = 1_000;

/**
 * One bounded pass: claim due rows, publish them with one bulk call, mark them sent.
 *
 * An outage counts against no row: everything claimed becomes due again, and only an error that comes from one row
 * alone brings that row nearer to dead.
 */
export async function relayOnce(
  db: Database,
  queue: ResumeQueue,
  log: Log,
  options: { limit: number; claimMs?: number },
): Promise<RelayCounts> {
  const token = randomUUID();
  const rows = await callFunction<{ id: string; tenant: string; run_id: string; wake: number }>(
    db,
    'claim_outbox',
    [options.limit, options.claimMs ?? CLAIM_MS, token],
  );
  if (rows.length === 0) {
    return { claimed: 0, sent: 0, failed: 0 };
  }
  const messages = rows.map((row) => ({
    id: row.id,
    job: { tenant: row.tenant, runId: row.run_id, wake: row.wake },
  }));
  try {
    await queue.publish(messages);
  } catch (error) {
    log.warn({ rows: rows.length, err: error }, 'publishing failed');
    return publishOneByOne(db, queue, log, messages, token, isCountersignError(error, 'REDIS_UNAVAILABLE'));
  }
  await callFunction(db, 'mark_outbox_sent', [rows.map((row) => row.id), token]);
  return { claimed: rows.length, sent: rows.length, failed: 0 };
}

/** After a bulk failure: find the row that is at fault, if it is a row at all. */
async function publishOneByOne(
  db: Database,
  queue: ResumeQueue,
  log: Log,
  messages: { id: string; job: { tenant: string; runId: string; wake: number } }[],
  token: string,
  outage: boolean,
): Promise<RelayCounts> {
  const counts: RelayCounts = { claimed: messages.length, sent: 0, failed: 0 };
  let down = outage;
  for (const message of messages) {
    let names = false;
    if (!down) {
      try {
        await queue.publish([message]);
        await callFunction(db, 'mark_outbox_sent', [[message.id], token]);
        counts.sent += 1;
        continue;
      } catch (error) {
        down = isCountersignError(error, 'REDIS_UNAVAILABLE') || isConnectionError(error);
        names = !down;
        log.warn({ outbox: message.id, names, err: error }, 'an outbox row was not published');
      }
    }
    counts.failed += 1;
    await callFunction(db, 'mark_outbox_failed', [
      message.id,
      token,
      names,
      FAILURE_BUDGET,
      RETRY_MS,
      names ? 'PUBLISH_REFUSED' : null,
    ]);
  }
  return counts;
}

/** Everything that is not clearly about the message counts as an outage: a row must not die of a bad network. */
function isConnectionError(error: unknown): boolean {
  return !(error instanceof Error) || !/job|payload|custom id|size/i.test(error.message);
}
