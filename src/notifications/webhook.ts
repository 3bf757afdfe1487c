import { gate } from '../failpoints.ts';
import type { NotificationSink } from './notification.ts';
import { signatureOf } from './signature.ts';

/**
 * Posts each notification as JSON. Any 2xx means received; a redirect does not, for it would carry the signature to
 * wherever somebody else says. What the receiver answers is not read, and the URL, which may be a secret, not logged.
 */
export function notificationWebhook(options: { url: string; secret: string | null }): NotificationSink {
  return async (notification, signal) => {
    const body = JSON.stringify(notification);
    const signature =
      options.secret === null
        ? {}
        : { 'countersign-signature': signatureOf(options.secret, body, Date.now()) };
    const response = await gate('notification', 'notify', () =>
      fetch(options.url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'countersign-notification': notification.id,
          ...signature,
        },
        body,
        redirect: 'manual',
        signal,
      }),
    );
    await response.body?.cancel();
    if (!response.ok) {
      throw new ReceiverRefused(response.status);
    }
  };
}

/** The sink that the settings name; undefined: none, so the log. */
export function sinkOf(settings: {
  notifyUrl: string | null;
  notifySecret: string | null;
}): NotificationSink | undefined {
  const { notifyUrl: url, notifySecret: secret } = settings;
  return url === null ? undefined : notificationWebhook({ url, secret });
}

/** Its status as `code`, which the log shows; a receiver's text may quote anything. */
class ReceiverRefused extends Error {
  override readonly name = 'ReceiverRefused';
  readonly code: string;

  constructor(status: number) {
    super(`the receiver answered ${status}`);
    this.code = `HTTP_${status}`;
  }
}
