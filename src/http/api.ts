import { type FastifyInstance, type FastifyReply, fastify } from 'fastify';
import type { ApiToken } from '../config.ts';
import { CountersignError } from '../errors.ts';
import type { Log } from '../log.ts';
import { metricsPage } from '../metrics/index.ts';
import { assertSchema, type Database, openDatabase } from '../postgres/index.ts';
import type { Running } from '../processes/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { stopOnce } from '../stop-once.ts';
import { addApprovalRoutes } from './approval-routes.ts';
import { makeAuthenticator } from './caller.ts';
import { answerFor, MAX_BODY_BYTES, unreadableRequest } from './failure.ts';
import { readBodiesStrictly } from './json-body.ts';
import { type RouteEnvironment, route } from './route.ts';
import { addRunRoutes } from './run-routes.ts';

export type ApiOptions = {
  databaseUrl: string;
  /** The `review` purpose alone: a ring that could open run state is refused. */
  keys: KeyRing;
  tokens: readonly ApiToken[];
  log: Log;
  /** Default 127.0.0.1: reachable from this machine alone. */
  host?: string;
  /** Default 0: a free one, named by `url`. */
  port?: number;
};

export type Api = Running & { readonly url: string };

/** A request that takes longer to arrive than this is dropped. */
const REQUEST_MS = 30_000;

/**
 * Serves the api until stopped. It loads no workflow code and takes on the role `countersign_api`.
 *
 * @throws CONFIG_INVALID (the state key was given, the port is taken), POSTGRES_UNAVAILABLE, SCHEMA_MISSING, SCHEMA_NEWER
 */
export async function runApi(options: ApiOptions): Promise<Api> {
  const { log } = options;
  if (options.keys.has('state')) {
    throw new CountersignError(
      'CONFIG_INVALID',
      'The api must not hold the state key; give it the review key alone.',
      {
        details: { field: 'keys' },
      },
    );
  }
  const db = openDatabase({
    url: options.databaseUrl,
    role: 'countersign_api',
    name: 'countersign api',
    onError: (error) => log.debug({ err: error }, 'connection trouble'),
  });
  const app = buildApp(db, options);
  try {
    await assertSchema(db);
    const url = await listen(app, options.host ?? '127.0.0.1', options.port ?? 0);
    log.info({ url }, 'api ready');
    return {
      url,
      stop: stopOnce(async () => {
        await app.close();
        await db.close();
        log.info('api stopped');
      }),
    };
  } catch (error) {
    await app.close();
    await db.close();
    throw error;
  }
}

function buildApp(db: Database, options: ApiOptions): FastifyInstance {
  const app = fastify({
    bodyLimit: MAX_BODY_BYTES,
    requestTimeout: REQUEST_MS,
    forceCloseConnections: 'idle',
    // Refusals that Fastify and Node give before any route is looked for, in our shape.
    frameworkErrors: (error, request, reply: FastifyReply) => {
      const { status, body } = answerFor(error, request.id);
      void reply.code(status).send(body);
    },
    clientErrorHandler: (_error, socket) => {
      if (socket.writable) {
        const body = JSON.stringify(unreadableRequest().toJSON());
        socket.end(
          `HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
        );
      }
    },
    // An id of any length is an id that does not exist, not another kind of answer.
    routerOptions: { maxParamLength: 2_000 },
  });
  readBodiesStrictly(app);
  answerAndLog(app, options.log);
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.get('/readyz', async (_request, reply) => {
    try {
      await assertSchema(db);
      return { status: 'ready' };
    } catch (error) {
      reply.code(503);
      return answerFor(error, '').body;
    }
  });
  const env = {
    db,
    keys: options.keys,
    authenticate: makeAuthenticator(options.tokens),
    log: options.log,
  };
  addRunRoutes(app, env);
  addApprovalRoutes(app, env);
  addMetricsRoute(app, env);
  return app;
}

/** Numbers over every tenant: a role of its own, that whoever runs the fleet gives to their collector. */
function addMetricsRoute(app: FastifyInstance, env: RouteEnvironment): void {
  route(app, env, 'GET', '/metrics', ['metrics'], async ({ reply }) => {
    reply.type('text/plain; version=0.0.4; charset=utf-8');
    return metricsPage(env.db);
  });
}

/** Errors as our JSON; one log line per request, with the route's pattern and never the URL, which may hold data. */
function answerAndLog(app: FastifyInstance, log: Log): void {
  app.setErrorHandler(async (error, request, reply) => {
    const { status, body } = answerFor(error, request.id);
    if (status >= 500) {
      log.error({ request: request.id, route: request.routeOptions.url, err: error }, 'a request failed');
    }
    if (status === 401) {
      reply.header('www-authenticate', 'Bearer');
    }
    return reply.code(status).send(body);
  });
  app.setNotFoundHandler(async () => {
    throw new CountersignError(
      'ROUTE_NOT_FOUND',
      'The api has no such method and path; everything of it is under /v1/runs, /v1/approvals and /metrics.',
    );
  });
  app.addHook('onSend', async (_request, reply) => {
    reply.header('cache-control', 'no-store');
    reply.header('x-content-type-options', 'nosniff');
  });
  app.addHook('onResponse', async (request, reply) => {
    const ms = Math.round(reply.elapsedTime);
    const route = request.routeOptions.url ?? null;
    log.info({ request: request.id, method: request.method, route, status: reply.statusCode, ms }, 'request');
  });
}

async function listen(app: FastifyInstance, host: string, port: number): Promise<string> {
  try {
    return await app.listen({ host, port });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (code === 'EADDRINUSE' || code === 'EACCES' || code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
      throw new CountersignError(
        'CONFIG_INVALID',
        `The api cannot listen on ${host}:${port} (${code}); choose another PORT or HOST, or stop what is there.`,
        { details: { field: 'PORT', host, port }, cause: error },
      );
    }
    throw error;
  }
}
