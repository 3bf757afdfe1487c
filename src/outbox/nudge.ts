import type { Database, Queryable } from '../postgres/index.ts';

/** What a relay listens to. */
export const OUTBOX_CHANNEL = 'countersign_outbox';

/**
 * Wakes a sleeping relay after a commit that left it something. Only to save it a poll: a nudge that is lost, or one for
 * a caller's own transaction, which nobody here sees commit, costs the time until the next.
 */
export function nudgeRelay(db: Database | Queryable): void {
  if ('pool' in db) {
    db.notify(OUTBOX_CHANNEL);
  }
}
