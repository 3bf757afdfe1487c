/** Reading a bounded JSON body and writing a JSON answer, on node:http alone. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { TextDecoder } from 'node:util';
import type { JsonValue } from './types.ts';

const BODY_LIMIT_BYTES = 64 * 1024;
/** An oversized body is still read up to here, so that its sender gets the 413 and not a reset socket. */
const DRAIN_LIMIT_BYTES = 4 * 1024 * 1024;

/** The request was wrong: answered with this status and `{ code, message }`. */
export class RequestRefused extends Error {
  override readonly name = 'RequestRefused';
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Resolves with the parsed body; refuses with 413 or 400; rejects when the sender goes away. */
export async function readJson(req: IncomingMessage): Promise<JsonValue> {
  const bytes = await readBody(req);
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) as JsonValue;
  } catch {
    throw new RequestRefused(400, 'body_not_json', 'the body must be JSON in UTF-8');
  }
}

function readBody(req: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let lengthBytes = 0;
    const tooLarge = (): RequestRefused =>
      new RequestRefused(413, 'body_too_large', `the limit is ${BODY_LIMIT_BYTES} bytes`);
    req.on('data', (chunk: Buffer) => {
      lengthBytes += chunk.length;
      if (lengthBytes <= BODY_LIMIT_BYTES) chunks.push(chunk);
      else if (lengthBytes > DRAIN_LIMIT_BYTES) reject(tooLarge());
    });
    req.on('end', () => {
      if (lengthBytes > BODY_LIMIT_BYTES) reject(tooLarge());
      else resolve(Buffer.concat(chunks));
    });
    req.on('error', reject);
    req.on('close', () => reject(new Error('the sender went away')));
  });
}

/** Writes the whole answer. An unread rest of the request closes the connection after it. */
export function sendJson(
  req: IncomingMessage,
  res: ServerResponse,
  reply: { status: number; body: unknown; headers?: Record<string, string> },
): void {
  const text = JSON.stringify(reply.body);
  res.writeHead(reply.status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    ...(bodyUnread(req) ? { connection: 'close' } : {}),
    ...reply.headers,
  });
  res.end(text);
}

/** `complete` alone is not enough: it is still false while a request without a body is being handled. */
function bodyUnread(req: IncomingMessage): boolean {
  const announced = Number(req.headers['content-length'] ?? 0) > 0 || 'transfer-encoding' in req.headers;
  return announced && !req.complete;
}

/** True when nobody can read an answer any more. */
export function callerGone(res: ServerResponse): boolean {
  return res.destroyed || res.socket === null || res.socket.destroyed;
}
