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
/** Failures before a connection stood: no byte of the request left this machine. */
const NEVER_CONNECTED = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/**
 * Sends one request under the operation key and says honestly what is known afterwards:
 *
 * - 2xx: done; the receipt is returned, also when its body broke off.
 * - 429, or no connection: not done; thrown as `neverSent`, and sent again under the same key.
 * - other 4xx that mean "not acted upon": thrown as `refused`; final, the model is told the status.
 * - everything else (408, 409 "in progress", 3xx, 5xx, a dropped connection, the deadline): proves nothing; thrown as
 *   it is, and the action's outcome is unknown until its recovery kind finds out.
 *
 * Makes exactly one request: redirects are not followed and nothing is retried here.
 */
export async function httpEffect(effect: HttpEffect): Promise<HttpReceipt> {
  const response = await send(effect);
  const receipt: HttpReceipt = { status: response.status, body: await readBody(response) };
  switch (effect.proves?.(receipt) ?? defaultProof(response.status)) {
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

async function send(effect: HttpEffect): Promise<Response> {
  try {
    return await fetch(effect.url, {
      method: effect.method ?? 'POST',
      redirect: 'manual',
      signal: effect.signal,
      headers: {
        ...(effect.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...effect.headers,
        [effect.keyHeader ?? 'Idempotency-Key']: effect.operationKey,
      },
      ...(effect.body === undefined ? {} : { body: JSON.stringify(effect.body) }),
    });
  } catch (error) {
    if (!effect.signal.aborted && neverConnected(error)) {
      throw neverSent('no connection to the provider');
    }
    throw error;
  }
}

/** True only if every address that was tried refused before a connection stood. */
function neverConnected(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  if (cause instanceof AggregateError) {
    return cause.errors.length > 0 && cause.errors.every((one: unknown) => NEVER_CONNECTED.has(codeOf(one)));
  }
  return NEVER_CONNECTED.has(codeOf(cause));
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
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

async function readBody(response: Response): Promise<unknown> {
  try {
    const text = await response.text();
    try {
      return JSON.parse(text) as unknown;
    } catch {
      return text;
    }
  } catch {
    return null;
  }
}
