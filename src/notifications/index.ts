/**
 * Notifications: what a person should hear of without looking.
 *
 *   a transition's event ─▶ (append_event, same transaction) notifications row ─▶ relay process ─▶ webhook, or the log
 *
 * An alert is committed with what it tells of, and delivered at least once under a stable id, so a receiver forgets the
 * ids it has seen. It holds ids and codes only (I12): whoever wants more asks the api or `runs explain`.
 *
 * Invariants: I10, I12. A crash between delivering and marking delivers again when the claim lapses; a receiver that is
 * gone is tried for ever with growing waits, beside the resume announcements and never before them.
 */
export { type NotifyCounts, notifyOnce } from './deliver.ts';
export { type ListedNotification, listNotifications } from './list.ts';
export { type Notification, type NotificationSink, notificationLog } from './notification.ts';
export { signatureOf, verifyNotification } from './signature.ts';
export { notificationWebhook, sinkOf } from './webhook.ts';
