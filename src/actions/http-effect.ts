import {
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
  request as requestHttp,
} from 'node:http';
import { request as requestHttps } from 'node:https';
import { neverSent, refused } from './outcome.ts';

/** One HTTP request that has an effect. */
export type HttpEffect = {
  url: string;
  /** Default POST. */
  method?: 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Sent as JSON. */
  body?: unknown;
  headers?: Record<string, string>;
  /** The action's `call.operationKey`. */
  operationKey: string;
  /** The action's `call.signal`: the call deadline. */
  signal: AbortSignal;
  /**
   * The action's `call.inTime`: asked when the connection stands, right before the first byte leaves, so that a process
   * that was frozen until then sends nothing.
   */
  inTime?: () => boolean;
  /** Header that carries the key (draft-ietf-httpapi-idempotency-key-header). Default `Idempotency-Key`. */
  keyHeader?: string;
  /**
   * Says what an answer proves, for a provider with rules of its own; undefined: the default below.
   * `done`: the effect is there. `refused`: it is not and will not be. `not_done`: it is not, send again later.
   */
  proves?: (answer: HttpReceipt) => 'done' | 'refused' | 'not_done' | 'nothing' | undefined;
};

/** What the provider answered. `body` is parsed JSON, text, or null when it could not be read. */
export type HttpReceipt = { status: number; body: unknown };

/** Client errors by which a server says that it did not act on the request (RFC 9110 section 15.5). */
const REFUSALS = new Set([400, 401, 403, 404, 405, 406, 410, 411, 412, 413, 414, 415, 422, 428, 431, 451]);

/**
 * Sends one request under the operation key and says honestly what is known afterwards:
 *
 * - 2xx: done; the receipt is returned, also when its body broke off.
 * - 429, or any failure before the first byte left: not done; thrown as `neverSent`, and sent again under the same key.
 * - other 4xx that mean "not acted upon": thrown as `refused`; final, the model is told the status.
 * - everything else (408, 409 "in progress", 3xx, 5xx, a dropped connection, the deadline): proves nothing; thrown as
 *   it is, and the action's outcome is unknown until its recovery kind finds out.
 *
 * Makes exactly one request: redirects are not followed and nothing is retried here.
 */
export async function httpEffect(effect: HttpEffect): Promise<HttpReceipt> {
  const receipt = await send(effect);
  switch (effect.proves?.(receipt) ?? defaultProof(receipt.status)) {
    case 'done':
      return receipt;
    case 'refused':
      throw refused(`HTTP ${receipt.status}`, receipt);
    case 'not_done':
      throw neverSent(`HTTP ${receipt.status}`);
    default:
      throw new Error(`HTTP ${receipt.status} proves nothing`);
  }
}

/** `left` alone decides what a failure means: until `go` has set it, not a byte of the request can have left. */
function send(effect: HttpEffect): Promise<HttpReceipt> {
  return new Promise((resolve, reject) => {
    let left = false;
    const fail = (error: unknown) =>
      reject(left ? error : neverSent(error instanceof Error ? error.message : String(error)));
    try {
      const body = effect.body === undefined ? undefined : JSON.stringify(effect.body);
      const { request, ready } = open(effect, body);
      const go = () => {
        left = effect.inTime?.() ?? true;
        if (left) {
          request.end(body);
        } else {
          request.destroy(new Error('the send window has passed'));
        }
      };
      request.once('socket', (socket) => {
        if (request.reusedSocket) {
          go();
        } else {
          socket.once(ready, go);
        }
      });
      request.once('response', (response) => {
        readBody(response).then((read) => resolve({ status: response.statusCode ?? 0, body: read }), reject);
      });
      request.once('error', fail);
    } catch (error) {
      fail(error);
    }
  });
}

/** A request of which nothing is sent before it is ended, and the socket's event after which a new one may be used. */
function open(
  effect: HttpEffect,
  body: string | undefined,
): { request: ClientRequest; ready: 'connect' | 'secureConnect' } {
  const options: RequestOptions = {
    method: effect.method ?? 'POST',
    signal: effect.signal,
    headers: {
      ...(body === undefined
        ? {}
        : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
      ...effect.headers,
      [effect.keyHeader ?? 'Idempotency-Key']: effect.operationKey,
    },
  };
  return new URL(effect.url).protocol === 'https:'
    ? { request: requestHttps(effect.url, options), ready: 'secureConnect' }
    : { request: requestHttp(effect.url, options), ready: 'connect' };
}

function defaultProof(status: number): 'done' | 'refused' | 'not_done' | 'nothing' {
  if (status >= 200 && status < 300) {
    return 'done';
  }
  if (status === 429) {
    return 'not_done';
  }
  return REFUSALS.has(status) ? 'refused' : 'nothing';
}

async function readBody(response: IncomingMessage): Promise<unknown> {
  try {
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) {
      text += chunk;
    }
    try {
      return JSON.parse(text) as unknown;
    } catch {
      return text;
    }
  } catch {
    return null;
  }
}
