import { type Database, readAsTenant } from '../postgres/index.ts';

export type ListedNotification = {
  id: string;
  kind: string;
  code: string | null;
  runId: string;
  actionId: string | null;
  approvalId: string | null;
  createdAt: Date;
  /** Deliveries that failed. */
  tries: number;
  /** Null: it waits for its receiver. */
  deliveredAt: Date | null;
};

/** parameters: limit, alerts only, undelivered only. Newest first. */
const LIST = `
  select id, kind, code, run_id as "runId", action_id as "actionId", approval_id as "approvalId", created_at as "createdAt",
    tries, delivered_at as "deliveredAt"
  from countersign.notifications
  where (not $2 or kind <> 'approval_requested') and (not $3 or delivered_at is null)
  order by created_at desc, id limit $1`;

/** A tenant's notifications, whether or not anybody received them. @param options.limit at most 500; default 50. */
export async function listNotifications(
  db: Database,
  options: { tenant: string; alerts?: boolean; undelivered?: boolean; limit?: number },
): Promise<ListedNotification[]> {
  return readAsTenant(db, options.tenant, async (tx) => {
    const { rows } = await tx.query(LIST, [
      Math.min(options.limit ?? 50, 500),
      options.alerts ?? false,
      options.undelivered ?? false,
    ]);
    return rows as ListedNotification[];
  });
}
