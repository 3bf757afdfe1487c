import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { cancelRun, explain, listRuns, showRun, start } from '../runs/index.ts';
import { type Exchange, limitOf, type RouteEnvironment, read, route } from './route.ts';

const RUN_STATUSES = [
  'ready',
  'running',
  'awaiting_approval',
  'awaiting_reconciliation',
  'parked',
  'completed',
  'failed',
  'cancelled',
  'superseded',
  'quarantined',
  'dead_lettered',
] as const;

const startBody = z.strictObject({
  workflow: z.string().min(1).max(200),
  version: z.string().min(1).max(100).optional(),
  input: z.union([z.string(), z.array(z.json())]),
  context: z.record(z.string(), z.json()).optional(),
  key: z.string().min(1).max(512).optional(),
});
const listQuery = z.strictObject({ status: z.enum(RUN_STATUSES).optional(), limit: limitOf(500) });

/** Runs: producers start and cancel them, everybody of the tenant may look. */
export function addRunRoutes(app: FastifyInstance, env: RouteEnvironment): void {
  const { db, keys } = env;
  const anyone = ['producer', 'reviewer', 'operator'] as const;

  route(app, env, 'POST', '/v1/runs', ['producer'], async ({ caller, body, reply }: Exchange) => {
    const { input, ...asked } = read(startBody, body, 'body');
    const started = await start(db, keys, {
      ...asked,
      input,
      tenant: caller.tenant,
      requestedBy: caller.subject,
    });
    reply.code(started.outcome === 'started' ? 201 : 200);
    return started;
  });

  route(app, env, 'GET', '/v1/runs', anyone, async ({ caller, query }) => {
    const { status, limit } = read(listQuery, query, 'query');
    return { runs: await listRuns(db, { tenant: caller.tenant, status, limit }) };
  });

  route(app, env, 'GET', '/v1/runs/:id', anyone, async ({ caller, id }) =>
    showRun(db, keys, { tenant: caller.tenant, runId: id }),
  );

  route(app, env, 'GET', '/v1/runs/:id/explanation', anyone, async ({ caller, id }) =>
    explain(db, { tenant: caller.tenant, runId: id }),
  );

  route(app, env, 'POST', '/v1/runs/:id/cancel', ['producer', 'operator'], async ({ caller, id, body }) => {
    read(z.strictObject({}).optional(), body, 'body');
    return cancelRun(db, { tenant: caller.tenant, runId: id, subject: caller.subject });
  });
}
