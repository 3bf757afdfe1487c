import type { ZodError } from 'zod';
import { CountersignError, type ErrorCode, isCountersignError } from '../errors.ts';

/** The status of each code that a request can meet. What is not here: 503 when a retry may help, else 400 or 500. */
const STATUS: Partial<Record<ErrorCode, number>> = {
  UNAUTHENTICATED: 401,
  FORBIDDEN: 403,
  SELF_APPROVAL: 403,
  ROUTE_NOT_FOUND: 404,
  RUN_NOT_FOUND: 404,
  APPROVAL_NOT_FOUND: 404,
  APPROVAL_DECIDED: 409,
  APPROVAL_CHANGED: 409,
  CLIENT_KEY_CONFLICT: 409,
  APPROVAL_EXPIRED: 410,
  BODY_TOO_LARGE: 413,
};

export type FailureAnswer = { status: number; body: ReturnType<CountersignError['toJSON']> };

/** Whatever was thrown, as an answer. An error that is not ours loses its text: it may quote data. */
export function answerFor(error: unknown, requestId: string): FailureAnswer {
  const ours = isCountersignError(error) ? error : foreign(error, requestId);
  const status = STATUS[ours.code] ?? (ours.retry ? 503 : ours.fault === 'caller' ? 400 : 500);
  return { status, body: ours.toJSON() };
}

/** Fastify's own refusals of a malformed request are 4xx and say so in `statusCode`; anything else is ours to find. */
function foreign(error: unknown, requestId: string): CountersignError {
  const status =
    error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number'
      ? error.statusCode
      : 500;
  if (status === 413) {
    return bodyTooLarge();
  }
  if (status >= 400 && status < 500) {
    return unreadableRequest();
  }
  return new CountersignError(
    'INTERNAL',
    'Something went wrong on our side; nothing is known to have changed. The log has it under the request id.',
    { details: { request: requestId } },
  );
}

export function unreadableRequest(): CountersignError {
  return new CountersignError(
    'INPUT_INVALID',
    'The request could not be read; send HTTP/1.1, and JSON with content-type application/json.',
    { details: { field: 'request' } },
  );
}

/** Bytes of a request's body: the limit of the strict JSON parser behind it. */
export const MAX_BODY_BYTES = 256 * 1024;

export function bodyTooLarge(): CountersignError {
  return new CountersignError(
    'BODY_TOO_LARGE',
    `A request's body has at most ${MAX_BODY_BYTES} bytes; pass large material by reference.`,
    { details: { limit: MAX_BODY_BYTES } },
  );
}

/** Names the first offending field and what it should have been; never its value. */
export function inputInvalid(where: string, error: ZodError): CountersignError {
  const [issue] = error.issues;
  const path = [where, ...(issue?.path.map(String) ?? [])].join('.').slice(0, 200);
  const what =
    issue?.code === 'unrecognized_keys'
      ? `has a field that is not known here (${issue.keys[0]?.slice(0, 64)})`
      : `is malformed: ${issue?.message ?? 'see the documentation'}`;
  return new CountersignError('INPUT_INVALID', `${path} ${what}.`, { details: { field: path } });
}
