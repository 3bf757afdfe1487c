import { isUtf8 } from 'node:buffer';
import type { FastifyInstance } from 'fastify';
import { type JsonValue, parseStrictJson } from '../digests/index.ts';
import { CountersignError, isCountersignError } from '../errors.ts';
import { bodyTooLarge, MAX_BODY_BYTES } from './failure.ts';

/**
 * Bodies are read by the same strict parser as a model's arguments: a body that two honest readers could read
 * differently (a key given twice, an integer beyond 2^53, half a surrogate pair) is refused before a route sees it.
 * An empty body is no body.
 */
export function readBodiesStrictly(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer', bodyLimit: MAX_BODY_BYTES },
    async (_request: unknown, body: Buffer) => parseBody(body),
  );
}

/** @throws INPUT_INVALID naming the place in the body. */
export function parseBody(body: Buffer): JsonValue | undefined {
  if (body.length === 0) {
    return undefined;
  }
  if (!isUtf8(body)) {
    throw new CountersignError('INPUT_INVALID', 'The body is not UTF-8 text.', {
      details: { field: 'body' },
    });
  }
  try {
    return parseStrictJson(body.toString('utf8'));
  } catch (error) {
    if (!isCountersignError(error, 'ARGUMENTS_REFUSED')) {
      throw error;
    }
    if (error.details.reason === 'too_large') {
      throw bodyTooLarge();
    }
    throw new CountersignError(
      'INPUT_INVALID',
      error.message.replace('Arguments refused', 'The body was refused'),
      { details: { ...error.details, field: 'body' } },
    );
  }
}
