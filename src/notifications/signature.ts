import { createHmac, timingSafeEqual } from 'node:crypto';

/** Older or newer than this is somebody else's copy. */
const TOLERANCE_MS = 300_000;

/** The value of `Countersign-Signature`: `t=SECONDS,v1=HEX`, an HMAC-SHA256 over `SECONDS.BODY`. */
export function signatureOf(secret: string, body: string, atMs: number): string {
  const seconds = Math.floor(atMs / 1_000);
  return `t=${seconds},v1=${hmac(secret, seconds, body).toString('hex')}`;
}

/**
 * For receivers: did this body come from whoever holds the secret, within the last five minutes?
 *
 * @param body the request's body as it came, before any parser.
 * @param header the value of `Countersign-Signature`.
 */
export function verifyNotification(
  secret: string,
  body: string,
  header: string | undefined,
  options: { toleranceMs?: number; nowMs?: number } = {},
): boolean {
  const [, seconds = '', given = ''] = /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(header ?? '') ?? [];
  if (given === '') {
    return false;
  }
  const age = Math.abs((options.nowMs ?? Date.now()) - Number(seconds) * 1_000);
  return (
    age <= (options.toleranceMs ?? TOLERANCE_MS) &&
    timingSafeEqual(hmac(secret, Number(seconds), body), Buffer.from(given, 'hex'))
  );
}

function hmac(secret: string, seconds: number, body: string): Buffer {
  return createHmac('sha256', secret).update(`${seconds}.${body}`).digest();
}
