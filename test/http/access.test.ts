import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runApi } from '../../src/index.ts';
import { createLog } from '../../src/log.ts';
import { createStage, type Stage, type Who } from './stage.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await createStage('http access');
});
afterAll(() => stage?.close());

const ID = randomUUID();
const DECISION = { verdict: 'approve', fingerprint: '0'.repeat(64) };

/** Every route, and who may use it. */
const ROUTES: [method: string, path: (id: string) => string, body: unknown, may: Who[]][] = [
  ['POST', () => '/v1/runs', { workflow: 'pay', input: 'x' }, ['acme/paula']],
  ['GET', () => '/v1/runs', undefined, ['acme/paula', 'acme/rita', 'acme/olga']],
  ['GET', (id) => `/v1/runs/${id}`, undefined, ['acme/paula', 'acme/rita', 'acme/olga']],
  ['GET', (id) => `/v1/runs/${id}/explanation`, undefined, ['acme/paula', 'acme/rita', 'acme/olga']],
  ['POST', (id) => `/v1/runs/${id}/cancel`, undefined, ['acme/paula', 'acme/olga']],
  ['GET', () => '/v1/approvals', undefined, ['acme/rita', 'acme/olga']],
  ['GET', (id) => `/v1/approvals/${id}`, undefined, ['acme/rita', 'acme/olga']],
  ['POST', (id) => `/v1/approvals/${id}/decisions`, DECISION, ['acme/rita']],
  ['POST', (id) => `/v1/approvals/${id}/revocation`, undefined, ['acme/rita']],
  ['GET', () => '/metrics', undefined, ['fleet/prometheus']],
];

describe('who may do what', () => {
  it('a request without a known token is refused alike on every route, whatever is wrong with it', async () => {
    const wrong = [
      undefined,
      'Bearer ',
      'Bearer unknown',
      `Basic ${stage.tokens['acme/rita']}`,
      `Bearer ${stage.tokens['acme/rita']}x`,
      `Bearer ${'x'.repeat(3_000)}`,
    ];
    for (const [method, path, body] of ROUTES) {
      const answers = await Promise.all(
        wrong.map((authorization) =>
          stage.send(method, path(ID), {
            headers: {
              ...(authorization === undefined ? {} : { authorization }),
              ...(body === undefined ? {} : { 'content-type': 'application/json' }),
            },
            ...(body === undefined ? {} : { body: JSON.stringify(body) }),
          }),
        ),
      );
      const [first] = answers;
      expect(first).toMatchObject({ status: 401, body: { code: 'UNAUTHENTICATED', details: {} } });
      expect(first?.headers.get('www-authenticate')).toBe('Bearer');
      expect(new Set(answers.map((answer) => JSON.stringify(answer.body))).size).toBe(1);
    }
  });

  it('a token without the role is refused before the id is looked at or the body read', async () => {
    const all: Who[] = ['acme/paula', 'acme/rita', 'acme/olga', 'fleet/prometheus'];
    for (const [method, path, , may] of ROUTES) {
      for (const who of all.filter((candidate) => !may.includes(candidate))) {
        const answer = await stage.ask(
          who,
          method,
          path(ID),
          method === 'POST' ? { nonsense: 1 } : undefined,
        );
        expect(answer, `${who} ${method} ${path(ID)}`).toMatchObject({
          status: 403,
          body: { code: 'FORBIDDEN' },
        });
      }
    }
  });

  it('health and readiness need no token and tell nothing', async () => {
    expect(await stage.ask(null, 'GET', '/healthz')).toMatchObject({ status: 200, body: { status: 'ok' } });
    expect(await stage.ask(null, 'GET', '/readyz')).toMatchObject({ status: 200, body: { status: 'ready' } });
  });

  it('the tenant and the subject come from the token, whatever the request says', async () => {
    const named = await stage.ask('umbrella/boss', 'POST', '/v1/runs', {
      workflow: 'pay',
      input: 'x',
      tenant: 'acme',
      requestedBy: 'rita',
    });
    expect(named).toMatchObject({ status: 400, body: { code: 'INPUT_INVALID' } });
    const plain = await stage.ask('umbrella/boss', 'POST', '/v1/runs', { workflow: 'pay', input: 'x' });
    const [run] = await stage.fleet.rows('select tenant, requested_by from countersign.runs where id = $1', [
      plain.body.runId,
    ]);
    expect(run).toEqual({ tenant: 'umbrella', requested_by: 'boss' });
  });
});

describe('tenants never meet', () => {
  it('every verb on another tenant’s id answers exactly as for an id that does not exist', async () => {
    const { runId, approvalId, fingerprint } = await stage.pausedRun();
    const unknown = randomUUID();
    const before = await stage.fleet.rows('select * from countersign.approvals where id = $1', [approvalId]);
    for (const [method, path, body] of ROUTES.filter(([, path]) => path(ID).includes(ID))) {
      const foreign = path(ID).includes('approvals') ? approvalId : runId;
      const withPrint = body === undefined ? undefined : { verdict: 'approve', fingerprint };
      const theirs = await stage.ask('umbrella/boss', method, path(foreign), withPrint);
      const nobodys = await stage.ask('umbrella/boss', method, path(unknown), withPrint);
      expect(theirs.status, `${method} ${path(foreign)}`).toBe(404);
      expect(JSON.stringify(theirs.body)).toBe(JSON.stringify(nobodys.body).replace(unknown, foreign));
    }
    expect(await stage.fleet.rows('select * from countersign.approvals where id = $1', [approvalId])).toEqual(
      before,
    );
    expect(stage.paid).toEqual([]);
  });

  it('lists hold the caller’s own only', async () => {
    const { runId } = await stage.pausedRun();
    const runs = await stage.ask('umbrella/boss', 'GET', '/v1/runs');
    const approvals = await stage.ask('umbrella/boss', 'GET', '/v1/approvals?state=all');
    expect(JSON.stringify([runs.body, approvals.body])).not.toContain(runId);
  });

  it('a client key of one tenant means nothing to another', async () => {
    const body = { workflow: 'pay', input: 'x', key: 'shared-key' };
    const first = await stage.ask('acme/paula', 'POST', '/v1/runs', body);
    const second = await stage.ask('umbrella/boss', 'POST', '/v1/runs', { ...body, input: 'y' });
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(first.body.runId).not.toBe(second.body.runId);
  });
});

describe('the process', () => {
  it('refuses to hold the state key', async () => {
    const { fleet } = stage;
    await expect(
      runApi({ databaseUrl: fleet.url, keys: fleet.keys, tokens: [], log: createLog('x', 'silent') }),
    ).rejects.toMatchObject({ code: 'CONFIG_INVALID', details: { field: 'keys' } });
  });

  it('says which address is taken', async () => {
    const { fleet, api } = stage;
    const { KeyRing } = await import('../../src/seal/index.ts');
    await expect(
      runApi({
        databaseUrl: fleet.url,
        keys: KeyRing.parse({ review: fleet.keySpec.review }),
        tokens: [],
        log: createLog('x', 'silent'),
        port: Number(new URL(api.url).port),
      }),
    ).rejects.toMatchObject({ code: 'CONFIG_INVALID', details: { field: 'PORT' } });
  });
});
