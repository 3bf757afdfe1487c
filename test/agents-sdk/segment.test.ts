import { setTimeout as sleep } from 'node:timers/promises';
import { retryPolicies, tool } from '@openai/agents';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  type AnyAgent,
  inspectGraph,
  type ModelAnswer,
  type ModelAsk,
  runSegment,
  type SegmentPort,
} from '../../src/agents-sdk/index.ts';
import { action, CountersignError, manual } from '../../src/index.ts';
import { modelOf, named, type Script } from '../support/crew.ts';

class Stop extends Error {}

const pay = () =>
  action({
    name: 'pay',
    description: 'Pay',
    parameters: z.object({ to: z.string() }),
    execute: () => 'never called here: the port performs',
    recovery: manual(),
  });

/** A segment whose two doors are the test's own. */
function segment(agent: AnyAgent, script: Script, port: Partial<SegmentPort> = {}) {
  const model = modelOf(script);
  const asked: { path: string; n: number }[] = [];
  inspectGraph(agent, (each) => 'name' in each && each.name === 'pay');
  const running = runSegment({
    agent,
    provider: { getModel: () => model },
    start: { kind: 'input', input: 'go', context: {} },
    port: {
      respond: (ask: ModelAsk): Promise<ModelAnswer> => {
        asked.push({ path: ask.path, n: ask.n });
        return ask.ask();
      },
      record: (_callId, _tool, run) => run(),
      isGated: () => false,
      perform: async () => 'paid',
      ...port,
    },
    session: null,
    maxTurns: 10,
    signal: new AbortController().signal,
  });
  return { running, model, asked };
}

const payThenDone: Script = (_agent, turn) =>
  turn === 0 ? [{ name: 'pay', arguments: { to: 'a' } }] : 'done';

describe('one segment', () => {
  it('ends with the very error that the journal threw, for the outer agent as for a nested one', async () => {
    const stop = new Stop('lease lost');
    const respond = () => Promise.reject(stop);
    await expect(segment(named('a'), payThenDone, { respond }).running).rejects.toBe(stop);
    const inner = named('inner').asTool({ toolName: 'inner', toolDescription: 'inner' });
    const nested = segment(
      named('outer', { tools: [inner] }),
      (agent, turn) =>
        agent === 'outer' && turn === 0 ? [{ name: 'inner', arguments: { input: 'x' } }] : 'done',
      { respond: (ask) => (ask.path === '' ? ask.ask() : Promise.reject(stop)) },
    );
    await expect(nested.running).rejects.toBe(stop);
    expect(nested.model.calls).toBe(1);
  });

  it('ends with the very error that the ledger threw, and asks its model nothing more', async () => {
    const stop = new Stop('unknown');
    const { running, model } = segment(named('a', { tools: [pay()] }), payThenDone, {
      perform: () => Promise.reject(stop),
    });
    await expect(running).rejects.toBe(stop);
    expect(model.calls).toBe(1);
  });

  it('starts nothing after it was stopped: siblings that have not begun are refused with the first reason', async () => {
    const stop = new Stop('unknown');
    const looked: string[] = [];
    const look = tool({
      name: 'look',
      description: 'Looks',
      parameters: z.object({}),
      execute: async () => {
        await new Promise((resolve) => setTimeout(resolve, 20));
        looked.push('looked');
        return 'seen';
      },
    });
    const { running, model } = segment(
      named('a', { tools: [pay(), look] }),
      (_agent, turn) =>
        turn === 0
          ? [
              { name: 'look', arguments: {} },
              { name: 'pay', arguments: { to: 'a' } },
            ]
          : 'done',
      { perform: () => Promise.reject(stop) },
    );
    await expect(running).rejects.toBe(stop);
    expect({ looked, asked: model.calls }).toEqual({ looked: ['looked'], asked: 1 });
  });

  it('lets an agent’s own retry policy ask a failing model again, at the same place of the journal', async () => {
    let failures = 2;
    const { running, asked } = segment(
      named('a', {
        modelSettings: {
          retry: { maxRetries: 3, policy: retryPolicies.any(() => true), backoff: { initialDelayMs: 1 } },
        },
      }),
      () => {
        failures -= 1;
        if (failures >= 0) throw Object.assign(new Error('slow down'), { status: 429 });
        return 'done';
      },
    );
    await expect(running).resolves.toMatchObject({ kind: 'final', output: 'done' });
    expect(asked).toEqual(Array(3).fill({ path: '', n: 0 }));
  });

  it('does not keep an answer that came after its agent’s time limit: the SDK has thrown it away', async () => {
    const dropped: unknown[] = [];
    const { running } = segment(
      named('a', { modelSettings: { timeoutMs: 20 } }),
      async () => {
        await sleep(60);
        return 'late';
      },
      {
        respond: (ask) =>
          ask.ask().catch((error: unknown) => {
            dropped.push((error as CountersignError).code);
            throw error;
          }),
      },
    );
    await expect(running).rejects.toMatchObject({ code: 'MODEL_FAILED' });
    expect(dropped).toEqual(['MODEL_FAILED']);
  });

  it('does not let a nested agent’s time limit become an answer for its caller’s model', async () => {
    const inner = named('inner', { modelSettings: { timeoutMs: 20 } });
    const { running, asked } = segment(
      named('outer', { tools: [inner.asTool({ toolName: 'inner', toolDescription: 'inner' })] }),
      async (agent, turn) => {
        if (agent === 'inner') await sleep(60);
        return agent === 'outer' && turn === 0 ? [{ name: 'inner', arguments: { input: 'x' } }] : 'done';
      },
    );
    await expect(running).rejects.toMatchObject({ code: 'MODEL_FAILED' });
    expect(asked).toHaveLength(2);
  });

  it('does not let a retry policy ask again what the journal has refused', async () => {
    const refused = new CountersignError('POSTGRES_UNAVAILABLE', 'no answer');
    let asked = 0;
    const { running } = segment(
      named('a', {
        modelSettings: {
          retry: { maxRetries: 3, policy: retryPolicies.any(() => true), backoff: { initialDelayMs: 1 } },
        },
      }),
      () => 'done',
      {
        respond: () => {
          asked += 1;
          return Promise.reject(refused);
        },
      },
    );
    await expect(running).rejects.toBe(refused);
    expect(asked).toBe(1);
  });

  it('gives each nested run its own path, named by the calls above it, and counts within it', async () => {
    const inner = named('inner').asTool({ toolName: 'inner', toolDescription: 'inner' });
    const { running, asked } = segment(named('outer', { tools: [inner] }), (agent, turn) =>
      agent === 'outer' && turn === 0
        ? ['c1', 'c2'].map((callId) => ({ name: 'inner', arguments: { input: callId }, callId }))
        : 'done',
    );
    await running;
    expect(asked).toEqual([
      { path: '', n: 0 },
      { path: 'c1', n: 0 },
      { path: 'c2', n: 0 },
      { path: '', n: 1 },
    ]);
  });

  it('refuses a journaled model and an action outside of any run', async () => {
    const agent = named('a', { model: modelOf(() => 'done'), tools: [pay()] });
    inspectGraph(agent, () => true);
    const { Runner } = await import('@openai/agents');
    await expect(new Runner({ tracingDisabled: true }).run(agent, 'go')).rejects.toMatchObject({
      code: 'OUTSIDE_A_RUN',
    });
    await expect(pay().invoke(undefined as never, '{"to":"a"}')).rejects.toMatchObject({
      code: 'OUTSIDE_A_RUN',
    });
  });
});
