import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { isCountersignError } from '../errors.ts';
import type { Role } from '../fleet-file.ts';
import type { Log } from '../log.ts';
import type { Database } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { isUuid } from '../uuid.ts';
import { assertRole, type Caller } from './caller.ts';
import { inputInvalid } from './failure.ts';

export type RouteEnvironment = {
  readonly db: Database;
  /** The `review` purpose alone. */
  readonly keys: KeyRing;
  readonly authenticate: (authorization: string | undefined) => Caller;
  readonly log: Log;
};

/** One authenticated, authorised request. Nothing in it is trusted but the caller. */
export type Exchange = {
  readonly caller: Caller;
  /** The `:id` of the path, or ''. */
  readonly id: string;
  readonly body: unknown;
  readonly query: unknown;
  readonly reply: FastifyReply;
};

/**
 * Adds one route. Authentication and roles come before the body is read, so that a stranger's megabytes are not
 * parsed and a wrong role learns nothing about an id.
 */
export function route(
  app: FastifyInstance,
  env: RouteEnvironment,
  method: 'GET' | 'POST',
  url: string,
  roles: readonly Role[],
  handle: (exchange: Exchange) => Promise<unknown>,
): void {
  const callers = new WeakMap<object, Caller>();
  app.route<{ Params: { id?: string } }>({
    method,
    url,
    onRequest: async (request) => {
      const caller = env.authenticate(request.headers.authorization);
      assertRole(caller, roles);
      callers.set(request, caller);
    },
    handler: async (request, reply) => {
      const caller = callers.get(request);
      if (caller === undefined) {
        throw new Error('a request reached its handler unauthenticated');
      }
      const { body, query } = request;
      const id = request.params.id ?? '';
      try {
        return await handle({ caller, id, body, query, reply });
      } catch (error) {
        if (isCountersignError(error) && /_NOT_FOUND$/.test(error.code)) {
          recordUnknownId(env.log, caller, { request: request.id, method, route: url, code: error.code, id });
        }
        throw error;
      }
    },
  });
}

/**
 * Who asked for an id that their tenant does not have. Nothing looks whether another tenant has it: here, too, the two
 * must be the same. It is a line of the log and not a row, for an event belongs to a run, and there is none.
 */
function recordUnknownId(log: Log, caller: Caller, asked: Record<string, string>): void {
  const { tenant, subject } = caller;
  log.warn(
    { ...asked, id: isUuid(asked.id ?? '') ? asked.id : null, tenant, subject },
    'an id was asked for that its tenant does not have',
  );
}

/** Reads `value` by a strict schema. @throws INPUT_INVALID naming the field under `where`. */
export function read<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  where: 'body' | 'query',
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (!parsed.success) {
    throw inputInvalid(where, parsed.error);
  }
  return parsed.data;
}

/** A `limit` of a list: 1 to `max`, default 50. */
export function limitOf(max: number) {
  return z
    .string()
    .regex(/^[1-9]\d{0,5}$/)
    .transform(Number)
    .refine((limit) => limit <= max, { error: `at most ${max}` })
    .default(50);
}
