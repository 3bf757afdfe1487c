import type { Log } from '../log.ts';

/** What a receiver is told: ids and codes, never arguments, results or words. */
export type Notification = {
  /** Stable: the same for every delivery of the same notification. */
  id: string;
  kind:
    | 'contradiction'
    | 'action_waits_for_person'
    | 'run_dead_lettered'
    | 'security_alert'
    | 'outbox_dead'
    | 'approval_requested';
  tenant: string;
  run: string;
  action: string | null;
  approval: string | null;
  /** Why, as ERRORS.md lists it. */
  code: string | null;
  /** When it happened, by the database's clock; ISO 8601. */
  at: string;
};

/** Delivers one notification, or throws: then it is tried again later. The signal fires at the delivery's deadline. */
export type NotificationSink = (notification: Notification, signal: AbortSignal) => Promise<void>;

/** Where notifications go while no receiver is named: alerts as warnings, requests for a decision as information. */
export function notificationLog(log: Log): NotificationSink {
  return async (notification) => {
    const { kind, at, ...fields } = notification;
    const level = kind === 'approval_requested' ? 'info' : 'warn';
    log[level]({ ...fields, kind, since: at }, 'a person should look');
  };
}
