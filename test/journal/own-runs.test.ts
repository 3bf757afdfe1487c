import { setTimeout as sleep } from 'node:timers/promises';
import { type Agent, type Model, run as runAgent, tool } from '@openai/agents';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { showRun } from '../../src/runs/index.ts';
import type { Workflow } from '../../src/workflows/index.ts';
import { crew, modelOf, named, type Script } from '../support/crew.ts';
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

async function launch(made: Workflow): Promise<Fleet> {
  fleet = await createFleet([made], { name: 'own-runs', backend: 'redis' });
  await Promise.all([fleet.relay(), fleet.worker({ retryDelayMs: 20 })]);
  return fleet;
}

const pay = (to: string) => ({ name: 'pay', arguments: { to, amount: 1 } });
const journalOf = (started: Fleet) =>
  started.rows('select path, n from countersign.model_calls where take = 0 order by path, n');

/** Throws its first `times` calls: the segment is then run again from the start. */
function failing(times: number): () => void {
  let left = times;
  return () => {
    left -= 1;
    if (left >= 0) throw new Error('503');
  };
}

/** One model instance for the run's agent and for the judge of its guardrails: what is wrapped for one is for both. */
function judged(script: Script) {
  const judgements: string[] = [];
  const model = modelOf(async (agent, turn, results) => {
    if (agent !== 'judge') return script(agent, turn, results);
    judgements.push(agent);
    // Asked before the run's own model, answered between its turns: sooner each time.
    await sleep(60 / judgements.length);
    return 'fine';
  });
  const asks = (agent: Agent<unknown, 'text'>) =>
    runAgent(agent.clone({ name: 'judge', instructions: 'judge', tools: [] }), 'may it?');
  const guard = {
    name: 'guard',
    execute: async ({ agent }: { agent: unknown }) => {
      const bare = (agent as Agent<unknown, 'text'>).clone({ inputGuardrails: [], outputGuardrails: [] });
      const said = await Promise.all([asks(bare), asks(bare)]);
      return { tripwireTriggered: said.some(({ finalOutput }) => finalOutput !== 'fine'), outputInfo: null };
    },
  };
  return { model, guard, judgements };
}

describe('a run that the workflow’s own code makes inside a segment', () => {
  it.each(['inputGuardrails', 'outputGuardrails'] as const)(
    'in %s, twice at once and beside the run’s own model, takes no place in the journal, live or on a replay',
    async (where) => {
      const fail = failing(1);
      const { model, guard, judgements } = judged(async (_agent, turn) => {
        await sleep(20);
        if (turn === 0) return [pay('a')];
        fail();
        return 'done';
      });
      const started = await launch(
        crew(
          () =>
            named('payer', {
              model,
              tools: [payAction(provider, { approval: null })],
              [where]: [guard],
            }),
          model,
        ),
      );
      const run = await started.start({ workflow: 'agents' });
      await started.until(run, 'completed');
      expect(await started.output(run)).toBe('done');
      expect(await dispatches(provider)).toBe(1);
      expect(await journalOf(started)).toEqual([
        { path: '', n: 0 },
        { path: '', n: 1 },
      ]);
      // At least once: the replay asked again.
      expect(judgements).toHaveLength(where === 'inputGuardrails' ? 4 : 2);
    },
  );

  it('in a tool, with the very agents of the workflow, at once: the tool’s result is recorded, and the replay sees it', async () => {
    const fail = failing(2);
    let asked = 0;
    const model: Model = modelOf(async (agent, turn, results) => {
      if (agent === 'expert') {
        asked += 1;
        return `opinion ${asked}`;
      }
      if (turn === 0) return [{ name: 'ask_experts', arguments: {} }];
      if (turn === 1) return [pay('a')];
      fail();
      return `heard ${results[0]}`;
    });
    const started = await launch(
      crew(
        () => {
          const expert = named('expert', { model });
          const experts = tool({
            name: 'ask_experts',
            description: 'Asks two experts at once',
            parameters: z.object({}),
            execute: async () => {
              const said = await Promise.all([runAgent(expert, 'left?'), runAgent(expert, 'right?')]);
              return said.map(({ finalOutput }) => finalOutput).join(' and ');
            },
          });
          return named('payer', {
            model,
            tools: [experts, payAction(provider, { approval: null })],
            handoffs: [expert],
          });
        },
        () => 'never asked: every agent has its model',
      ),
    );
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'completed');
    expect(await started.output(run)).toBe('heard opinion 1 and opinion 2');
    expect(asked).toBe(2);
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(await journalOf(started)).toEqual([0, 1, 2].map((n) => ({ path: '', n })));
  });

  it('may not carry out an action: nothing would give it an identity. The run is parked with the reason, without an effect', async () => {
    const action = payAction(provider, { approval: null });
    const model = modelOf((agent, turn) => {
      if (agent === 'inner') return turn === 0 ? [pay('a')] : 'inner done';
      return turn === 0 ? [{ name: 'delegate', arguments: {} }] : 'done';
    });
    const started = await launch(
      crew(() => {
        const inner = named('inner', { model, tools: [action] });
        const delegate = tool({
          name: 'delegate',
          description: 'Runs the other agent by itself',
          parameters: z.object({}),
          execute: async () => String((await runAgent(inner, 'pay')).finalOutput),
        });
        return named('outer', { model, tools: [delegate, action] });
      }, model),
    );
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'parked');
    expect(await started.rows('select reason from countersign.runs')).toEqual([
      { reason: 'TOOL_NOT_GUARDED' },
    ]);
    expect(await dispatches(provider)).toBe(0);
  });
});

describe('a guardrail', () => {
  it.each(['inputGuardrails', 'outputGuardrails'] as const)(
    'in %s that trips only when the segment is carried again ends the run, and the effect of the first time stays one',
    async (where) => {
      const fail = failing(1);
      let checked = 0;
      const guard = {
        name: 'guard',
        execute: async () => {
          checked += 1;
          return { tripwireTriggered: where === 'outputGuardrails' || checked > 1, outputInfo: null };
        },
      };
      const started = await launch(
        crew(
          () =>
            named('payer', {
              tools: [payAction(provider, { approval: null })],
              [where]: [guard],
            }),
          (_agent, turn) => {
            if (turn === 0) return [pay('a')];
            fail();
            return 'done';
          },
        ),
      );
      const run = await started.start({ workflow: 'agents' });
      await started.until(run, 'failed');
      expect(await started.rows('select reason from countersign.runs')).toEqual([{ reason: 'RUN_FAILED' }]);
      expect(await effects(provider)).toEqual({ a: 1 });
      expect(await dispatches(provider)).toBe(1);
      // The answer that the output guardrail refused was paid for, and is in the journal as well.
      const { usage, wasted } = await showRun(started.api, started.keys, { tenant: 'acme', runId: run });
      expect(usage.requests).toBe(where === 'outputGuardrails' ? 2 : 1);
      expect(wasted.requests).toBe(1);
    },
  );
});

describe('agents used as tools at once, in a segment that is carried again', () => {
  it.each([false, true])(
    'get their own stored answers, in whatever order they ask (streamed: %s)',
    async (streamed) => {
      const fail = failing(2);
      const order: string[] = [];
      let round = 0;
      const model = modelOf(async (agent, turn, results) => {
        if (agent === 'outer') {
          if (turn === 0)
            return ['left', 'right'].map((to) => ({ name: to, arguments: { input: to }, callId: 'c1' }));
          round += 1;
          fail();
          return results.join(' and ');
        }
        if (turn === 0) {
          // The first round answers left first, if it asks at all; a live repetition would answer right first.
          await sleep((agent === 'left') === (round === 0) ? 5 : 40);
          order.push(agent);
          return [{ ...pay(agent), callId: 'c1' }];
        }
        return `${agent} heard ${results.length} of ${/pay-(left|right)/.exec(results.join())?.[1]}`;
      });
      const started = await launch(
        crew(() => {
          const action = payAction(provider, { approval: null });
          const as = (name: string) =>
            named(name, { tools: [action] }).asTool({
              toolName: name,
              toolDescription: name,
              ...(streamed ? { onStream: () => undefined } : {}),
            });
          return named('outer', { tools: [as('left'), as('right')] });
        }, model),
      );
      const run = await started.start({ workflow: 'agents' });
      await started.until(run, 'completed');
      expect(await started.output(run)).toBe('left heard 1 of left and right heard 1 of right');
      expect(order).toEqual(['left', 'right']);
      expect(await effects(provider)).toEqual({ left: 1, right: 1 });
      expect(await dispatches(provider)).toBe(2);
      expect(await journalOf(started)).toHaveLength(6);
    },
  );
});
