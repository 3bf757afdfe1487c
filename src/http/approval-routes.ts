import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { decide, listApprovals, revoke, showApproval } from '../approvals/index.ts';
import { limitOf, type RouteEnvironment, read, route } from './route.ts';

const APPROVAL_STATES = [
  'pending',
  'approved',
  'consumed',
  'rejected',
  'expired',
  'revoked',
  'superseded',
  'invalidated',
] as const;

const listQuery = z.strictObject({
  state: z.enum([...APPROVAL_STATES, 'all']).default('pending'),
  limit: limitOf(500),
});
const decisionBody = z.strictObject({
  verdict: z.enum(['approve', 'reject']),
  /** Of the card the person was shown: 64 hex digits. */
  fingerprint: z.string().regex(/^[0-9a-f]{64}$/),
  words: z.string().max(4_000).optional(),
});

/** Approvals: reviewers decide and revoke, operators may look. */
export function addApprovalRoutes(app: FastifyInstance, env: RouteEnvironment): void {
  const { db, keys } = env;
  const readers = ['reviewer', 'operator'] as const;

  route(app, env, 'GET', '/v1/approvals', readers, async ({ caller, query }) => {
    const { state, limit } = read(listQuery, query, 'query');
    const wanted = state === 'all' ? null : state;
    return { approvals: await listApprovals(db, { tenant: caller.tenant, state: wanted, limit }) };
  });

  route(app, env, 'GET', '/v1/approvals/:id', readers, async ({ caller, id }) =>
    showApproval(db, keys, { tenant: caller.tenant, approvalId: id }),
  );

  route(app, env, 'POST', '/v1/approvals/:id/decisions', ['reviewer'], async ({ caller, id, body }) => {
    const decision = read(decisionBody, body, 'body');
    return decide(db, keys, {
      ...decision,
      tenant: caller.tenant,
      approvalId: id,
      subject: caller.subject,
    });
  });

  route(app, env, 'POST', '/v1/approvals/:id/revocation', ['reviewer'], async ({ caller, id, body }) => {
    read(z.strictObject({}).optional(), body, 'body');
    return revoke(db, { tenant: caller.tenant, approvalId: id, subject: caller.subject });
  });
}
