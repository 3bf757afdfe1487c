import { setTimeout as sleep } from 'node:timers/promises';
import { tool } from '@openai/agents';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Workflow } from '../../src/index.ts';
import { crew, modelOf, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { dispatches, effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

let provider: Provider;
let fleet: Fleet | undefined;

beforeAll(async () => {
  provider = await startProvider();
});
beforeEach(() => provider.client.reset());
afterEach(async () => {
  await fleet?.close();
  fleet = undefined;
});
afterAll(() => provider?.stop());

async function launch(made: Workflow, worker: Parameters<Fleet['worker']>[0] = {}): Promise<Fleet> {
  fleet = await createFleet([made], { name: 'model-failures', backend: 'redis' });
  await Promise.all([fleet.relay(), fleet.worker(worker)]);
  return fleet;
}

const as = (agent: ReturnType<typeof named>) =>
  agent.asTool({ toolName: agent.name, toolDescription: agent.name });
const pay = (to: string) => ({ name: 'pay', arguments: { to, amount: 1 } });
const actionsOf = (fleet: Fleet) =>
  fleet.rows<{ state: string; attempt: number }>(
    'select state, attempt from countersign.actions order by created_at, id',
  );

class RateLimit extends Error {
  readonly status = 429;
}

describe('a model that fails', () => {
  it('after the tool has committed (S08): one effect, the stored receipt answers each retry, the run completes', async () => {
    let failures = 3;
    const during: unknown[] = [];
    const model = modelOf(async (_agent, turn, results) => {
      if (turn === 0) return [pay('a')];
      if (failures > 0) {
        failures -= 1;
        during.push(await actionsOf(fleet as Fleet));
        throw new RateLimit('slow down');
      }
      return `heard ${results.length}: ${results[0]?.includes('"kind":"pay-a"')}`;
    });
    const { start, until, decideAll, output } = await launch(
      crew(() => named('payer', { tools: [payAction(provider)] }), model),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(await output(run)).toBe('heard 1: true');
    expect(during).toEqual(Array(3).fill([{ state: 'succeeded', attempt: 1 }]));
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(await dispatches(provider)).toBe(1);
    expect(model.calls).toBe(5);
  });

  it('inside a nested agent is not told to the outer model, and its tools’ effects are not repeated', async () => {
    let failures = 2;
    const outerHeard: string[][] = [];
    const { start, until } = await launch(
      crew(
        () =>
          named('outer', {
            tools: [as(named('inner', { tools: [payAction(provider, { approval: null })] }))],
          }),
        (agent, turn, results) => {
          if (agent === 'outer') {
            outerHeard.push(results);
            return turn === 0 ? [{ name: 'inner', arguments: { input: 'x' } }] : 'done';
          }
          if (turn === 0) return [pay('a')];
          if (failures > 0) {
            failures -= 1;
            throw new RateLimit('slow down');
          }
          return 'inner done';
        },
      ),
    );
    await until(await start({ workflow: 'agents' }), 'completed');
    expect(outerHeard).toEqual([[], ['inner done']]);
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(await dispatches(provider)).toBe(1);
  });

  it('for good is given up after the budget, with its reason and without an effect', async () => {
    const model = modelOf(() => {
      throw new RateLimit('slow down');
    });
    const { start, until, rows } = await launch(
      crew(() => named('payer', { tools: [payAction(provider)] }), model),
      { maxAttempts: 3 },
    );
    await until(await start({ workflow: 'agents' }), 'dead_lettered');
    expect(model.calls).toBe(3);
    expect(await rows('select class, code from countersign.dead_letters')).toEqual([
      { class: 'transient_exhausted', code: 'MODEL_FAILED' },
    ]);
  });

  it('by asking for a tool that its agent does not have is told so, and may go on', async () => {
    const heard: string[][] = [];
    const gated = payAction(provider);
    const { start, until, decideAll } = await launch(
      crew(
        // The second agent's action is in the graph, but not in the first agent's reach.
        () =>
          named('first', {
            tools: [gated],
            handoffs: [named('second', { tools: [payAction(provider, { name: 'refund' })] })],
          }),
        (_agent, turn, results) => {
          heard.push(results);
          if (turn === 0)
            return [
              { name: 'invented', arguments: {} },
              { name: 'refund', arguments: { to: 'b', amount: 1 } },
            ];
          return turn === 1 ? [pay('a')] : 'done';
        },
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval', 5_000);
    expect(heard[1]).toEqual(["Tool 'invented' not found.", "Tool 'refund' not found."]);
    expect(await decideAll(run, 'approve')).toBe(1);
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
  });
});

describe('a run that a repetition would only repeat', () => {
  it('fails at the turn limit, and keeps the effects it had', async () => {
    const { start, until, rows } = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider, { approval: null })] }),
        (_agent, turn) => [pay('abcdef'[turn] ?? 'z')],
        {
          maxTurns: 3,
        },
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'failed');
    expect(await rows('select reason, attempts_in_round from countersign.runs')).toMatchObject([
      { reason: 'RUN_FAILED' },
    ]);
    expect(await effects(provider)).toEqual({ a: 1, b: 1, c: 1 });
  });

  it.each([
    ['at once', 0],
    ['while the model’s answer is already there', 150],
  ])(
    'fails at the tripwire of an input guardrail that speaks %s: nothing was executed',
    async (_when, delayMs) => {
      const guard = {
        name: 'guard',
        execute: async () => {
          await sleep(delayMs);
          return { tripwireTriggered: true, outputInfo: 'no' };
        },
      };
      const { start, until, rows } = await launch(
        crew(
          () =>
            named('payer', { tools: [payAction(provider, { approval: null })], inputGuardrails: [guard] }),
          (_agent, turn) => (turn === 0 ? [pay('a')] : 'done'),
        ),
      );
      await until(await start({ workflow: 'agents' }), 'failed');
      expect(await rows('select reason from countersign.runs')).toEqual([{ reason: 'RUN_FAILED' }]);
      expect(await dispatches(provider)).toBe(0);
      expect((await actionsOf(fleet as Fleet)).filter(({ attempt }) => attempt > 0)).toEqual([]);
    },
  );

  it('fails at the tripwire of an output guardrail, and keeps the effect it had', async () => {
    const guard = { name: 'guard', execute: async () => ({ tripwireTriggered: true, outputInfo: 'no' }) };
    const { start, until, decideAll } = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider)], outputGuardrails: [guard] }),
        (_agent, turn) => (turn === 0 ? [pay('a')] : 'done'),
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'failed');
    expect(await effects(provider)).toEqual({ a: 1 });
  });

  it.each([
    ['', undefined],
    [' (streamed)', () => undefined],
  ])(
    'fails when a nested agent ends at its turn limit after it was resumed%s: its effect is kept, and nobody is invited to repeat it',
    async (_name, onStream) => {
      const heard: string[][] = [];
      const { start, until, decideAll } = await launch(
        crew(
          () => {
            const limited = named('inner', { tools: [payAction(provider)] }).asTool({
              toolName: 'inner',
              toolDescription: 'inner',
              runOptions: { maxTurns: 1 },
              ...(onStream === undefined ? {} : { onStream }),
            });
            return named('outer', { tools: [limited, payAction(provider, { name: 'refund' })] });
          },
          (agent, turn, results) => {
            if (agent === 'inner') return [pay('a')];
            heard.push(results);
            return turn === 0
              ? [{ name: 'inner', arguments: { input: 'x' } }]
              : [{ ...pay('b'), name: 'refund' }];
          },
        ),
      );
      const run = await start({ workflow: 'agents' });
      await until(run, 'awaiting_approval');
      expect(await decideAll(run, 'approve')).toBe(1);
      await until(run, ['failed', 'dead_lettered', 'awaiting_approval']);
      expect(await (fleet as Fleet).rows('select status, reason from countersign.runs')).toEqual([
        { status: 'failed', reason: 'RUN_FAILED' },
      ]);
      expect(await actionsOf(fleet as Fleet)).toEqual([{ state: 'succeeded', attempt: 1 }]);
      expect(await effects(provider)).toEqual({ a: 1 });
      expect(heard).toEqual([[]]);
    },
  );

  it('goes on when a nested agent ends at its turn limit with nothing done: its caller’s model is told', async () => {
    const heard: string[][] = [];
    const look = tool({
      name: 'look',
      description: 'Looks',
      parameters: z.object({}),
      execute: () => 'seen',
    });
    const { start, until } = await launch(
      crew(
        () => {
          const limited = named('inner', { tools: [look] }).asTool({
            toolName: 'inner',
            toolDescription: 'inner',
            runOptions: { maxTurns: 1 },
          });
          return named('outer', { tools: [limited] });
        },
        (agent, turn, results) => {
          if (agent === 'inner') return [{ name: 'look', arguments: {} }];
          heard.push(results);
          return turn === 0 ? [{ name: 'inner', arguments: { input: 'x' } }] : 'done';
        },
      ),
    );
    await until(await start({ workflow: 'agents' }), 'completed');
    expect(heard[1]?.[0]).toContain('An error occurred');
  });
});

describe('a segment that lasts too long', () => {
  it('is not finished with calls that never ran: it is run again, and each effect happens once', async () => {
    let slow = true;
    const heard: string[][] = [];
    const wait = tool({
      name: 'wait',
      description: 'Waits',
      parameters: z.object({}),
      execute: () => 'waited',
    });
    const { start, until } = await launch(
      crew(
        () => named('payer', { tools: [wait, payAction(provider, { approval: null })] }),
        async (_agent, turn, results) => {
          heard.push(results);
          if (turn === 0) return [pay('a')];
          if (turn === 1) {
            // A model that does not look at its signal.
            if (slow) await sleep(700);
            slow = false;
            return [pay('b'), { name: 'wait', arguments: {} }];
          }
          return 'done';
        },
      ),
      { maxSegmentMs: 400, ttlMs: 2_000 },
    );
    await (fleet as Fleet).reconciler();
    await until(await start({ workflow: 'agents' }), 'completed', 20_000);
    expect(heard.flat().filter((result) => result.includes('abort'))).toEqual([]);
    expect(await effects(provider)).toEqual({ a: 1, b: 1 });
  });
});
