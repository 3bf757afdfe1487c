import type { Command } from 'commander';
import { listNotifications } from '../../notifications/index.ts';
import { group, leaf } from '../command.ts';
import { fromNow, globalsOf, print, table } from '../output.ts';
import { withSession } from '../session.ts';
import { wholeNumber } from '../values.ts';

type Filter = { alerts?: boolean; undelivered?: boolean; limit: number };

/** notifications: what a person should have heard of. */
export function addNotifications(program: Command): void {
  const notifications = group(
    program,
    'notifications',
    'alerts and requests, and whether they arrived',
    'list',
  );

  leaf(notifications, 'list', 'newest first')
    .option('--alerts', 'leave out requests for a decision')
    .option('--undelivered', 'only those that still wait for their receiver')
    .option('--limit <N>', 'how many, at most 500', wholeNumber(1, 500), 50)
    .action(async (filter: Filter, command: Command) => {
      const found = await withSession(globalsOf(command), ({ db, tenant }) =>
        listNotifications(db, { tenant, ...filter }),
      );
      const rows = found.map((notification) => [
        fromNow(notification.createdAt),
        notification.kind,
        notification.code,
        notification.deliveredAt === null ? `waits (${notification.tries} tries)` : 'delivered',
        notification.actionId ?? notification.approvalId,
        notification.runId,
      ]);
      print(command, {
        json: found,
        text:
          found.length === 0
            ? 'No notifications.'
            : table(['WHEN', 'KIND', 'CODE', 'DELIVERY', 'ABOUT', 'RUN'], rows),
      });
    });
}
