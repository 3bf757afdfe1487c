import { Agent, tool } from '@openai/agents';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { showRun } from '../../src/runs/index.ts';
import { type Workflow, workflow } from '../../src/workflows/index.ts';
import { scriptedModel } from '../fixtures/scripted.ts';
import { crew, modelOf, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { argumentsOf, cardFor, cardsOf, decideCard } from '../support/reviewer.ts';

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

async function launch(...workflows: Workflow[]): Promise<Fleet> {
  fleet = await createFleet(workflows, { name: 'agents', backend: 'redis' });
  await Promise.all([fleet.relay(), fleet.worker()]);
  return fleet;
}

describe('several calls in one turn (S03)', () => {
  function mixed() {
    let freed = 0;
    const heard: string[][] = [];
    const free = payAction(provider, { name: 'free', approval: null });
    const plain = tool({
      name: 'count',
      description: 'Counts',
      parameters: z.object({}),
      execute: () => {
        freed += 1;
        return 'counted';
      },
    });
    const made = crew(
      () => {
        const second = named('second');
        return named('first', { tools: [free, plain, payAction(provider)], handoffs: [second] });
      },
      (agent, turn, results) => {
        heard.push(results);
        if (agent === 'first' && turn === 0) {
          return [
            { name: 'free', arguments: { to: 'free', amount: 0 } },
            { name: 'count', arguments: {} },
            { name: 'pay', arguments: { to: 'a', amount: 1 } },
            { name: 'pay', arguments: { to: 'b', amount: 2 } },
            { name: 'transfer_to_second', arguments: {} },
          ];
        }
        return `${agent} is done`;
      },
    );
    return { made, heard, counted: () => freed };
  }

  it.each([
    ['a first', ['a', 'b']],
    ['b first', ['b', 'a']],
  ] as const)(
    'free calls run once at the pause, a is paid, b is not, the handoff follows: %s',
    async (_name, order) => {
      const { made, heard, counted } = mixed();
      const { start, until, output } = await launch(made);
      const run = await start({ workflow: 'agents' });
      await until(run, 'awaiting_approval');
      expect(await effects(provider)).toEqual({ free: 1 });
      const cards = await cardsOf(fleet as Fleet, run);
      expect(cards.map(argumentsOf)).toEqual(
        expect.arrayContaining([
          { to: 'a', amount: 1 },
          { to: 'b', amount: 2 },
        ]),
      );
      for (const to of order) {
        expect(await until(run, 'awaiting_approval')).toBe('awaiting_approval');
        expect(await effects(provider)).toEqual({ free: 1 });
        await decideCard(fleet as Fleet, cardFor(cards, to), {
          verdict: to === 'a' ? 'approve' : 'reject',
          words: to === 'b' ? 'b is not to be paid' : undefined,
        });
      }
      await until(run, 'completed');
      expect(await output(run)).toBe('second is done');
      expect(await effects(provider)).toEqual({ free: 1, a: 1 });
      expect(counted()).toBe(1);
      expect(heard.at(-1)).toContain('b is not to be paid');
      expect(heard.at(-1)).toContain('counted');
    },
  );

  it('with one of several gated calls undecided nothing runs, not even the approved ones', async () => {
    const { made } = mixed();
    const started = await launch(made);
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'awaiting_approval');
    const cards = await cardsOf(started, run);
    const decided = await decideCard(started, cardFor(cards, 'a'), { verdict: 'approve' });
    expect(decided).toMatchObject({ outcome: 'approved', runStatus: 'awaiting_approval' });
    // A stray delivery of the run, as a sweep or a duplicate would make it.
    await started.rows(
      `insert into countersign.outbox (tenant, run_id, wake) select tenant, id, wake from countersign.runs where id = $1`,
      [run],
    );
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await started.until(run, 'awaiting_approval')).toBe('awaiting_approval');
    expect(await effects(provider)).toEqual({ free: 1 });
  });

  it('two identical gated calls of one turn are two cards, and each decision is its own', async () => {
    const made = crew(
      () => named('payer', { tools: [payAction(provider)] }),
      (_agent, turn) =>
        turn === 0
          ? [
              { name: 'pay', arguments: { to: 'a', amount: 1 }, callId: 'same' },
              { name: 'pay', arguments: { to: 'a', amount: 1 }, callId: 'same' },
            ]
          : 'done',
    );
    const started = await launch(made);
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'awaiting_approval');
    const [one, two] = await cardsOf(started, run);
    if (one === undefined || two === undefined) throw new Error('two cards were expected');
    await decideCard(started, one, { verdict: 'approve' });
    await decideCard(started, two, { verdict: 'reject' });
    await started.until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
  });

  it.each([
    ['approve', 2],
    ['reject', 1],
  ] as const)(
    'of two identical gated calls, both approved, the second is asked again once the first is done: %s',
    async (verdict, times) => {
      const made = crew(
        () => named('payer', { tools: [payAction(provider)] }),
        (_agent, turn) =>
          turn === 0
            ? [
                { name: 'pay', arguments: { to: 'twin', amount: times } },
                { name: 'pay', arguments: { to: 'twin', amount: times } },
              ]
            : 'done',
      );
      const started = await launch(made);
      const run = await started.start({ workflow: 'agents' });
      await started.until(run, 'awaiting_approval');
      expect((await cardsOf(started, run)).map(({ identical }) => identical)).toEqual([null, null]);
      await started.decideAll(run, 'approve');
      await expect.poll(async () => (await cardsOf(started, run)).length, { timeout: 20_000 }).toBe(1);
      const [again] = await cardsOf(started, run);
      expect(again?.identical).toMatchObject({ runId: run, state: 'succeeded' });
      expect(await effects(provider)).toEqual({ twin: 1 });
      expect(await started.until(run, 'awaiting_approval')).toBe('awaiting_approval');
      if (again === undefined) throw new Error('a card was expected');
      await decideCard(started, again, { verdict });
      await started.until(run, 'completed');
      expect(await effects(provider)).toEqual({ twin: times });
    },
  );
});

describe('call ids that the model chose badly', () => {
  it.each([
    ['empty', ''],
    ['the same', 'Bash_0'],
    ['longer than any column', 'x'.repeat(5_000)],
    ['hostile', "'; drop table runs; --\u202e"],
  ])('a turn whose call ids are all %s still pays each payee once', async (_name, callId) => {
    const made = crew(
      () => named('payer', { tools: [payAction(provider)] }),
      (_agent, turn) =>
        turn < 2
          ? ['a', 'b'].map((to) => ({ name: 'pay', arguments: { to, amount: turn + 1 }, callId }))
          : 'done',
    );
    const { start, until, decideAll } = await launch(made);
    const run = await start({ workflow: 'agents' });
    for (let turn = 0; turn < 2; turn += 1) {
      await until(run, 'awaiting_approval');
      expect(await decideAll(run, 'approve')).toBe(2);
      await until(run, turn === 0 ? 'awaiting_approval' : 'completed');
    }
    expect(await effects(provider)).toEqual({ a: 2, b: 2 });
  });
});

describe('one run over several segments', () => {
  it('a second gated call after the first approval pauses again, and each is paid once', async () => {
    const scripted = modelOf((_agent, turn) =>
      turn < 3 ? [{ name: 'pay', arguments: { to: `p${'abc'[turn]}`, amount: turn } }] : 'done',
    );
    const made = crew(() => named('payer', { tools: [payAction(provider)] }), scripted);
    const { start, until, decideAll, api, keys } = await launch(made);
    const run = await start({ workflow: 'agents' });
    for (const before of [{}, { pa: 1 }, { pa: 1, pb: 1 }]) {
      await until(run, 'awaiting_approval');
      expect(await effects(provider)).toEqual(before);
      expect(await decideAll(run, 'approve')).toBe(1);
      await until(run, ['ready', 'running', 'awaiting_approval', 'completed']);
      await expect.poll(() => effects(provider)).not.toEqual(before);
    }
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ pa: 1, pb: 1, pc: 1 });
    expect(scripted.calls).toBe(4);
    const { usage } = await showRun(api, keys, { tenant: 'acme', runId: run });
    expect(usage).toEqual({ requests: 4, inputTokens: 40, outputTokens: 20, totalTokens: 60 });
  });

  it('the turn limit counts the turns of the whole run, over all its segments', async () => {
    const made = crew(
      () => named('payer', { tools: [payAction(provider)] }),
      (_agent, turn) => (turn < 9 ? [{ name: 'pay', arguments: { to: 'a', amount: turn } }] : 'done'),
      { maxTurns: 2 },
    );
    const { start, until, decideAll, rows } = await launch(made);
    const run = await start({ workflow: 'agents' });
    for (let turn = 0; turn < 2; turn += 1) {
      await until(run, 'awaiting_approval');
      await decideAll(run, 'approve');
      await expect.poll(() => effects(provider)).toEqual({ a: turn + 1 });
    }
    await until(run, 'failed');
    expect(await rows('select reason from countersign.runs')).toEqual([{ reason: 'RUN_FAILED' }]);
    expect(await effects(provider)).toEqual({ a: 2 });
  });
});

describe('what the model may return', () => {
  it('a typed final output is stored as the object it is', async () => {
    const made = crew(
      () =>
        new Agent({
          name: 'typed',
          instructions: 'typed',
          tools: [payAction(provider)],
          outputType: z.object({ paid: z.array(z.string()), total: z.number(), note: z.string().nullable() }),
        }),
      (_agent, turn) =>
        turn === 0
          ? [{ name: 'pay', arguments: { to: 'a', amount: 1 } }]
          : JSON.stringify({ paid: ['a'], total: 1.5, note: null }),
    );
    const { start, until, decideAll, output } = await launch(made);
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(await output(run)).toEqual({ paid: ['a'], total: 1.5, note: null });
  });

  it('an agent whose model is an instance is journaled like one whose model is a name', async () => {
    const instance = modelOf((_agent, turn) =>
      turn === 0 ? [{ name: 'pay', arguments: { to: 'a', amount: 1 }, callId: 'c1' }] : 'done',
    );
    const made = workflow({
      name: 'agents',
      version: '1',
      agent: () => named('instance', { model: instance, tools: [payAction(provider)] }),
      modelProvider: () => ({
        getModel: () => {
          throw new Error('the name is not to be resolved');
        },
      }),
    });
    const { start, until, decideAll, rows } = await launch(made);
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(instance.calls).toBe(2);
    const calls = await rows<{ call_id: string }>('select call_id from countersign.actions');
    expect(calls[0]?.call_id).toMatch(/^call_[0-9a-f-]{36}$/);
    expect(await rows('select 1 from countersign.model_calls')).toHaveLength(2);
  });

  it('defaults of the schema are shown to the reviewer and are what runs', async () => {
    const parameters = z.object({
      to: z.string(),
      amount: z.number(),
      currency: z.enum(['EUR', 'USD']).default('EUR'),
      memo: z.string().nullable().default(null),
    });
    const executed: unknown[] = [];
    const defaulted = payAction(provider, {
      parameters: parameters as never,
      execute: (args, { operationKey, signal }) => {
        executed.push(args);
        return provider.client.create(`pay-${args.to}`, args, { idempotencyKey: operationKey, signal });
      },
    });
    const made = crew(
      () => named('payer', { tools: [defaulted] }),
      (_agent, turn) =>
        turn === 0
          ? [{ name: 'pay', arguments: '{ "amount": 1.0e1, "to": "\\u0061", "extra": 1 }' }]
          : 'done',
    );
    const started = await launch(made);
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'awaiting_approval');
    const effective = { to: 'a', amount: 10, currency: 'EUR', memo: null };
    expect((await cardsOf(started, run)).map(argumentsOf)).toEqual([effective]);
    await started.decideAll(run, 'approve');
    await started.until(run, 'completed');
    expect(executed).toEqual([effective]);
    expect(await effects(provider)).toEqual({ a: 1 });
  });

  it('twenty runs at once through one worker are paid once each, with their own arguments', async () => {
    const made = workflow({
      name: 'agents',
      version: '1',
      agent: () => named('payer', { tools: [payAction(provider)] }),
      modelProvider: () => ({
        getModel: () =>
          scriptedModel((turn, request) => {
            const said = JSON.stringify(request.input);
            const to = /run-([a-t])/.exec(said)?.[1] ?? 'nobody';
            return turn === 0 ? [{ name: 'pay', arguments: { to, amount: 1 }, callId: 'c1' }] : `paid ${to}`;
          }),
      }),
    });
    const { start, until, decideAll, output } = await launch(made);
    const letters = [...'abcdefghijklmnopqrst'];
    const runs = await Promise.all(
      letters.map((letter) => start({ workflow: 'agents', input: `run-${letter}` })),
    );
    await Promise.all(runs.map((run) => until(run, 'awaiting_approval')));
    await Promise.all(runs.map((run) => decideAll(run, 'approve')));
    await Promise.all(runs.map((run) => until(run, 'completed')));
    expect(await Promise.all(runs.map((run) => output(run)))).toEqual(
      letters.map((letter) => `paid ${letter}`),
    );
    expect(await effects(provider)).toEqual(Object.fromEntries(letters.map((letter) => [letter, 1])));
  });
});
