import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, run as runAgent } from '@openai/agents';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Workflow, workflow } from '../../src/workflows/index.ts';
import { resultsIn, scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
import { crew, modelOf, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { dispatches, effects, payAction, payment } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { argumentsOf, cardsOf, decideCard } from '../support/reviewer.ts';

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
  fleet = await createFleet([made], { name: 'shapes', backend: 'redis' });
  await Promise.all([fleet.relay(), fleet.worker()]);
  return fleet;
}

const pay = (to: string, amount = 1) => ({ name: 'pay', arguments: { to, amount } });

describe('shapes of an agent', () => {
  it('an approval is for one call: the next one, with other arguments, is another card (S02)', async () => {
    const started = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider)] }),
        (_agent, turn) => [[pay('acme')], [pay('evil', 999_999)], 'done'][turn] ?? '',
      ),
    );
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'awaiting_approval');
    await started.decideAll(run, 'approve');
    await expect
      .poll(async () => (await cardsOf(started, run)).map(argumentsOf))
      .toEqual([{ to: 'evil', amount: 999_999 }]);
    expect(await effects(provider)).toEqual({ acme: 1 });
    await started.decideAll(run, 'reject');
    await started.until(run, 'completed');
    expect(await effects(provider)).toEqual({ acme: 1 });
  });

  it('fifty gated calls of one turn, all decided at the same moment: one resume, each approved one paid once', async () => {
    const payees = Array.from(
      { length: 50 },
      (_, index) => `p-${'abcdefghij'[index % 10]}${'abcde'[Math.floor(index / 10)]}`,
    );
    const started = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider)] }),
        (_agent, turn, results) => (turn === 0 ? payees.map((to) => pay(to)) : `heard ${results.length}`),
      ),
    );
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'awaiting_approval');
    const cards = await cardsOf(started, run);
    await Promise.all(
      cards.map((card, index) =>
        decideCard(started, card, { verdict: index % 5 === 0 ? 'reject' : 'approve' }),
      ),
    );
    await started.until(run, 'completed');
    expect(await started.output(run)).toBe('heard 50');
    const approved = cards
      .filter((_card, index) => index % 5 !== 0)
      .map((card) => argumentsOf(card).to as string);
    expect(await effects(provider)).toEqual(Object.fromEntries(approved.map((to) => [to, 1])));
    expect(await started.rows('select wake from countersign.runs')).toEqual([{ wake: 2 }]);
  });

  it('one that stops at its first tool ends with what the ledger answered, receipt or refusal', async () => {
    for (const verdict of ['approve', 'reject'] as const) {
      const started = await launch(
        crew(
          () => named('payer', { tools: [payAction(provider)], toolUseBehavior: 'stop_on_first_tool' }),
          () => [pay('a')],
        ),
      );
      const run = await started.start({ workflow: 'agents' });
      await started.until(run, 'awaiting_approval');
      await started.decideAll(run, verdict, 'no');
      await started.until(run, 'completed');
      expect(await started.output(run)).toEqual(
        verdict === 'reject' ? 'no' : expect.stringContaining('"kind":"pay-a"'),
      );
      await started.close();
      fleet = undefined;
    }
    expect(await effects(provider)).toEqual({ a: 1 });
  });

  it('agents that hand over to each other and back keep their own calls', async () => {
    const gated = payAction(provider);
    const started = await launch(
      crew(
        () => {
          const first = named('first', { tools: [gated] });
          const second = named('second', { tools: [gated], handoffs: [first] });
          first.handoffs.push(second);
          return first;
        },
        (agent, turn) => {
          const script = [
            [pay('x'), { name: 'transfer_to_second', arguments: {} }],
            [pay('y'), { name: 'transfer_to_first', arguments: {} }],
            `${agent} is done`,
          ];
          return script[turn] ?? '';
        },
      ),
    );
    const run = await started.start({ workflow: 'agents' });
    for (const paid of [{ x: 1 }, { x: 1, y: 1 }]) {
      await started.until(run, 'awaiting_approval');
      expect(await started.decideAll(run, 'approve')).toBe(1);
      await expect.poll(() => effects(provider)).toEqual(paid);
    }
    await started.until(run, 'completed');
    expect(await started.output(run)).toBe('first is done');
  });

  it('a guardrail that asks an agent of its own, while the run’s model is asked, takes no place in the journal', async () => {
    const judge = new Agent({ name: 'judge', model: modelOf(() => 'fine') });
    const guard = {
      name: 'guard',
      execute: async () => ({
        outputInfo: (await runAgent(judge, 'may it?')).finalOutput,
        tripwireTriggered: false,
      }),
    };
    let failures = 1;
    const started = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider, { approval: null })], inputGuardrails: [guard] }),
        async (_agent, turn) => {
          await sleep(20);
          if (turn === 1 && failures > 0) {
            failures -= 1;
            throw new Error('429');
          }
          return turn === 0 ? [pay('a')] : 'done';
        },
      ),
    );
    await started.until(await started.start({ workflow: 'agents' }), 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(await started.rows('select path, n from countersign.model_calls order by n')).toEqual([
      { path: '', n: 0 },
      { path: '', n: 1 },
    ]);
  });

  it('text with reordering, invisible and look-alike characters runs raw, exactly as it was digested (S25)', async () => {
    const memo =
      'p\u0430ypal.com \u202ereversed\u202c \u2066x\u2069 a\u200bb \ufeff so\u00adft \u2028 \u001b[31m שלום مرحبا 👩‍👩‍👧';
    const executed: unknown[] = [];
    const noted = payAction(provider, {
      parameters: payment.extend({ memo: z.string() }) as never,
      execute: (args) => {
        executed.push(args);
        return 'paid';
      },
    });
    const started = await launch(
      crew(
        () => named('payer', { tools: [noted] }),
        (_agent, turn) => (turn === 0 ? [{ name: 'pay', arguments: { to: 'a', amount: 1, memo } }] : 'done'),
      ),
    );
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'awaiting_approval');
    const [card] = await cardsOf(started, run);
    expect(card?.review.arguments).toEqual({ to: 'a', amount: 1, memo });
    await started.decideAll(run, 'approve');
    await started.until(run, 'completed');
    expect(executed).toEqual([{ to: 'a', amount: 1, memo }]);
  });
});

describe('a model that hands out the same objects again and again', () => {
  it('as a cache of answers would: runs at once keep their own calls, and what it handed out stays untouched', async () => {
    const cached = [
      {
        type: 'function_call',
        callId: 'c1',
        name: 'pay',
        status: 'completed',
        arguments: '{"to":"a","amount":1}',
      },
    ];
    const frozen = Object.freeze(cached.map((item) => Object.freeze(item)));
    const scripted = scriptedModel(() => 'done');
    const caching = {
      ...scripted,
      getResponse: async (request: Parameters<typeof scripted.getResponse>[0]) => {
        const answer = await scripted.getResponse(request);
        return resultsIn(request).length > 0 ? answer : { ...answer, output: frozen as never };
      },
    };
    const started = await launch(
      crew(
        () => named('payer', { model: caching, tools: [payAction(provider, { repeatable: true })] }),
        scripted,
      ),
    );
    const runs = await Promise.all(Array.from({ length: 8 }, () => started.start({ workflow: 'agents' })));
    await Promise.all(runs.map((run) => started.until(run, 'awaiting_approval')));
    await Promise.all(runs.map((run) => started.decideAll(run, 'approve')));
    await Promise.all(runs.map((run) => started.until(run, 'completed')));
    expect(await effects(provider)).toEqual({ a: 8 });
    expect(frozen[0]?.callId).toBe('c1');
  });
});

describe('instructions that change with every reading', () => {
  const clocked = (
    script: Parameters<typeof scriptedModel>[0],
    tools: () => ReturnType<typeof payAction>[],
  ) => {
    let reading = 0;
    return workflow({
      name: 'agents',
      version: '1',
      agent: () => {
        const tick = () => {
          reading += 1;
          return `It is reading ${reading}.`;
        };
        return new Agent({ name: 'clocked', instructions: tick, tools: tools() });
      },
      modelProvider: scriptedProvider(scriptedModel(script)),
    });
  };

  it('are no obstacle over a pause', async () => {
    const started = await launch(
      clocked(
        (turn) => [[pay('a')], [pay('b')], 'done'][turn] ?? '',
        () => [payAction(provider)],
      ),
    );
    const run = await started.start({ workflow: 'agents' });
    for (const paid of [{ a: 1 }, { a: 1, b: 1 }]) {
      await started.until(run, 'awaiting_approval');
      await started.decideAll(run, 'approve');
      await expect.poll(() => effects(provider)).toEqual(paid);
    }
    await started.until(run, 'completed');
  });

  // OPEN (requestDigest covers the instructions): a replay after one 429 "asks something else", and since an effect has
  // been sent the run is dead-lettered as REPLAY_DIVERGED. "Today is …" in the instructions is common.
  it('do not strand a run whose model failed once after an ungated effect', async () => {
    let failures = 1;
    const started = await launch(
      clocked(
        (turn, request) => {
          if (turn === 0) return [pay('a')];
          if (failures > 0) {
            failures -= 1;
            throw new Error('429');
          }
          return `heard ${resultsIn(request).length}`;
        },
        () => [payAction(provider, { approval: null })],
      ),
    );
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'completed', 5_000);
    expect(await dispatches(provider)).toBe(1);
  });
});
