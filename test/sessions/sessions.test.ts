import { Agent, type AgentInputItem } from '@openai/agents';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { releaseClient } from '../../examples/release-service/client.ts';
import { action, idempotent, workflow } from '../../src/index.ts';
import { scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { type Provider, startProvider } from '../support/provider.ts';

let provider: Provider;
let fleet: Fleet;
let asked: AgentInputItem[][] = [];
let modelFails = false;
let serial = 0;

beforeAll(async () => {
  provider = await startProvider();
  const releases = releaseClient(provider.url);
  const pay = action({
    name: 'pay',
    description: 'Pay somebody',
    parameters: z.object({ to: z.string(), nonce: z.number() }),
    execute: (args, { operationKey, signal }) =>
      releases.create('refunds', args, { idempotencyKey: operationKey, signal }),
    recovery: idempotent({ keyLifetime: '24h' }),
    approval: { policy: 'refunds' },
  });
  const model = scriptedModel((_turn, request) => {
    const items = typeof request.input === 'string' ? [] : request.input;
    asked.push(items);
    const last = items.at(-1);
    if (last?.type === 'function_call_result') {
      if (modelFails) {
        throw new Error('429');
      }
      return 'paid';
    }
    serial += 1;
    return last !== undefined && JSON.stringify(last).includes('hello')
      ? 'hi'
      : [{ name: 'pay', arguments: { to: 'acme', nonce: serial } }];
  });
  fleet = await createFleet(
    [
      workflow({
        name: 'chat',
        version: '1',
        agent: () => new Agent({ name: 'Chat', tools: [pay] }),
        modelProvider: scriptedProvider(model),
      }),
    ],
    {
      name: 'sessions',
      backend: 'redis',
    },
  );
  await fleet.relay();
  await fleet.worker({ maxAttempts: 2 });
});

afterAll(async () => {
  await fleet?.close();
  await provider?.stop();
});

/** Each call id once as a call and once as a result, in that order. */
function expectWellFormed(items: readonly AgentInputItem[]): void {
  const calls = items.flatMap((item) => (item.type === 'function_call' ? [item.callId] : []));
  const results = items.flatMap((item) => (item.type === 'function_call_result' ? [item.callId] : []));
  expect(results).toEqual(calls);
  expect(new Set(calls).size).toBe(calls.length);
}

describe('a session', () => {
  it('holds each call and each result once, whatever is delivered how often, and the next turn sees it so', async () => {
    const first = await fleet.start({ workflow: 'chat', input: 'pay acme', session: 's07' });
    await fleet.until(first, 'awaiting_approval');
    await fleet.decideAll(first, 'approve');
    await fleet.until(first, 'completed');
    const [row] = await fleet.rows<{ wake: number }>('select wake from countersign.runs where id = $1', [
      first,
    ]);
    await fleet.rows(
      'insert into countersign.outbox (tenant, run_id, wake) values ($1, $2, $3), ($1, $2, $3)',
      ['acme', first, row?.wake],
    );
    asked = [];
    const second = await fleet.start({ workflow: 'chat', input: 'hello', session: 's07' });
    await fleet.until(second, 'completed');
    const history = asked.at(-1) ?? [];
    expectWellFormed(history);
    expect(history.filter((item) => item.type === 'message' || 'role' in item)).toHaveLength(3);
    expect((await provider.client.counts()).commits).toBe(1);
  });

  it('has one active run: a second start is refused, naming the first, and may take its place while nothing is in flight', async () => {
    const before = (await provider.client.counts()).commits;
    const first = await fleet.start({ workflow: 'chat', input: 'pay acme', session: 'busy' });
    await fleet.until(first, 'awaiting_approval');
    await expect(fleet.start({ workflow: 'chat', input: 'hello', session: 'busy' })).rejects.toMatchObject({
      code: 'SESSION_BUSY',
      details: { runId: first },
    });
    const second = await fleet.start({ workflow: 'chat', input: 'hello', session: 'busy', supersede: true });
    await fleet.until(second, 'completed');
    await fleet.until(first, 'superseded');
    const [approval] = await fleet.rows<{ state: string }>(
      'select state from countersign.approvals where run_id = $1',
      [first],
    );
    expect(approval?.state).toBe('superseded');
    expect((await provider.client.counts()).commits).toBe(before);
  });

  it('of many starts at once on one session exactly one wins', async () => {
    const starts = await Promise.allSettled(
      Array.from({ length: 12 }, () =>
        fleet.start({ workflow: 'chat', input: 'pay acme', session: 'crowd' }),
      ),
    );
    expect(starts.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const start of starts) {
      if (start.status === 'rejected') {
        expect(start.reason).toMatchObject({ code: 'SESSION_BUSY' });
      }
    }
  });

  it('is given free by a dead letter, with an explicit result for what was left open, and moves on without it', async () => {
    modelFails = true;
    const dead = await fleet.start({ workflow: 'chat', input: 'pay acme', session: 'dead' });
    await fleet.until(dead, 'awaiting_approval');
    await fleet.decideAll(dead, 'approve');
    await fleet.until(dead, 'dead_lettered');
    modelFails = false;
    asked = [];
    const next = await fleet.start({ workflow: 'chat', input: 'hello', session: 'dead' });
    await fleet.until(next, 'completed');
    const history = asked.at(-1) ?? [];
    expectWellFormed(history);
    expect(JSON.stringify(history)).toContain('Executed; the run that asked for it was given up');
  });
});
