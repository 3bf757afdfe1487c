import { Agent } from '@openai/agents';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Workflow, workflow } from '../../src/workflows/index.ts';
import { resultsIn, scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
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
  fleet = await createFleet(workflows, { name: 'nested', backend: 'redis' });
  await Promise.all([fleet.relay(), fleet.worker()]);
  return fleet;
}

const as = (agent: Agent, toolName: string) => agent.asTool({ toolName, toolDescription: toolName });
const ask = (name: string) => ({ name, arguments: { input: `for ${name}` }, callId: 'c1' });
const pay = (to: string, amount = 1) => ({ name: 'pay', arguments: { to, amount }, callId: 'c1' });

describe('an agent used as a tool', () => {
  it('pauses the run at its inner gated call, and the approval carries that call to one effect', async () => {
    const model = modelOf((agent, turn, results) => {
      if (agent === 'outer') return turn === 0 ? [ask('inner')] : `outer heard: ${results.join()}`;
      return turn === 0 ? [pay('a')] : `inner paid: ${results.length}`;
    });
    const { start, until, decideAll, output } = await launch(
      crew(
        () => named('outer', { tools: [as(named('inner', { tools: [payAction(provider)] }), 'inner')] }),
        model,
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    expect(await effects(provider)).toEqual({});
    expect(await decideAll(run, 'approve')).toBe(1);
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(await output(run)).toBe('outer heard: inner paid: 1');
    expect(model.calls).toBe(4);
  });

  it('is told the reviewer’s words when its inner call is rejected, and so is nobody else', async () => {
    const heard: Record<string, string[]> = {};
    const { start, until, decideAll, output } = await launch(
      crew(
        () => named('outer', { tools: [as(named('inner', { tools: [payAction(provider)] }), 'inner')] }),
        (agent, turn, results) => {
          heard[agent] = results;
          if (agent === 'outer') return turn === 0 ? [ask('inner')] : 'done';
          return turn === 0 ? [pay('a')] : 'inner gave up';
        },
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'reject', 'not this month');
    await until(run, 'completed');
    expect(await output(run)).toBe('done');
    expect(heard).toEqual({ inner: ['not this month'], outer: ['inner gave up'] });
    expect(await effects(provider)).toEqual({});
  });

  it('may pause a second time within the same outer call', async () => {
    const model = modelOf((agent, turn) => {
      if (agent === 'outer') return turn === 0 ? [ask('inner'), pay('x')] : 'done';
      return turn < 3 ? [pay(`in-${'abc'[turn]}`)] : 'inner done';
    });
    const action = payAction(provider);
    const { start, until, decideAll } = await launch(
      crew(
        () => named('outer', { tools: [action, as(named('inner', { tools: [action] }), 'inner')] }),
        model,
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    expect(await decideAll(run, 'approve')).toBe(2);
    for (const paid of [
      { x: 1, 'in-a': 1 },
      { x: 1, 'in-a': 1, 'in-b': 1 },
    ]) {
      await expect.poll(() => effects(provider)).toEqual(paid);
      await until(run, 'awaiting_approval');
      expect(await decideAll(run, 'approve')).toBe(1);
    }
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ x: 1, 'in-a': 1, 'in-b': 1, 'in-c': 1 });
    expect(model.calls).toBe(6);
  });

  it('deeper agents pause too: a call three agents down is approved and paid once', async () => {
    const action = payAction(provider);
    const model = modelOf((agent, turn, results) => {
      if (agent === 'deep') return turn === 0 ? [pay('a')] : `deep: ${results.length}`;
      return turn === 0 ? [ask(agent === 'outer' ? 'middle' : 'deep')] : `${agent}(${results.join()})`;
    });
    const { start, until, decideAll, output } = await launch(
      crew(() => {
        const deep = named('deep', { tools: [action] });
        const middle = named('middle', { tools: [as(deep, 'deep')] });
        return named('outer', { tools: [as(middle, 'middle')] });
      }, model),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    expect(await effects(provider)).toEqual({});
    expect(await decideAll(run, 'approve')).toBe(1);
    await until(run, 'completed');
    expect(await output(run)).toBe('outer(middle(deep: 1))');
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(model.calls).toBe(6);
  });

  it('streams to its own listener without leaving the journal', async () => {
    const events: string[] = [];
    const model = modelOf((agent, turn) => {
      if (agent === 'outer') return turn === 0 ? [ask('inner')] : 'done';
      return turn === 0 ? [pay('a')] : 'inner done';
    });
    const { start, until, decideAll, rows } = await launch(
      crew(() => {
        const inner = named('inner', { tools: [payAction(provider)] });
        const streamed = inner.asTool({
          toolName: 'inner',
          toolDescription: 'inner',
          onStream: ({ event }) => void events.push(event.type),
        });
        return named('outer', { tools: [streamed] });
      }, model),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    expect(await decideAll(run, 'approve')).toBe(1);
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(await rows('select 1 from countersign.model_calls')).toHaveLength(4);
    expect(events).toContain('run_item_stream_event');
  });
});

describe('agents used as tools side by side', () => {
  /** Two inner agents, called in one turn; both call `pay` under the provider's call id `c1`. */
  function pair(sameName: boolean) {
    const action = payAction(provider);
    const heard: Record<string, string[]> = {};
    const model = modelOf((agent, turn, results) => {
      heard[agent] = results;
      if (agent === 'outer') return turn === 0 ? [ask('left'), ask('right')] : results.join(' and ');
      return turn === 0 ? [pay(agent)] : `${agent}: ${results.join()}`;
    });
    const inner = (side: string) =>
      new Agent({ name: sameName ? 'inner' : side, instructions: side, tools: [action] });
    const made = crew(
      () => named('outer', { tools: [as(inner('left'), 'left'), as(inner('right'), 'right')] }),
      model,
    );
    return { made, heard, model };
  }

  it.each([
    ['different names', false],
    ['one name', true],
  ])(
    'with %s: one inner call approved and the other rejected, each hears its own',
    async (_name, sameName) => {
      const { made, heard, model } = pair(sameName);
      const started = await launch(made);
      const run = await started.start({ workflow: 'agents' });
      await started.until(run, 'awaiting_approval');
      const cards = await cardsOf(started, run);
      expect(cards.map((card) => argumentsOf(card).to).sort()).toEqual(['left', 'right']);
      await decideCard(started, cardFor(cards, 'left'), { verdict: 'approve' });
      await decideCard(started, cardFor(cards, 'right'), { verdict: 'reject', words: 'right is wrong' });
      await started.until(run, 'completed');
      expect(await effects(provider)).toEqual({ left: 1 });
      expect(heard.right).toEqual(['right is wrong']);
      expect(heard.left).toHaveLength(1);
      expect(heard.left?.[0]).toContain('"kind":"pay-left"');
      expect(await started.output(run)).toMatch(/^left: .* and right: right is wrong$/);
      expect(model.calls).toBe(6);
    },
  );

  it('one and the same agent called twice in a turn keeps its two runs apart', async () => {
    const action = payAction(provider);
    const model = scriptedModel((turn, request) => {
      if (request.systemInstructions === 'outer') {
        if (turn > 0) return resultsIn(request).join(' and ');
        return ['left', 'right'].map((to) => ({ name: 'inner', arguments: { input: to }, callId: 'c1' }));
      }
      const to = JSON.stringify(request.input).includes('left') ? 'left' : 'right';
      return turn === 0 ? [pay(to)] : `${to} ${resultsIn(request)[0] === 'no' ? 'refused' : 'paid'}`;
    });
    const started = await launch(
      workflow({
        name: 'agents',
        version: '1',
        agent: () => named('outer', { tools: [as(named('inner', { tools: [action] }), 'inner')] }),
        modelProvider: scriptedProvider(model),
      }),
    );
    const run = await started.start({ workflow: 'agents' });
    await started.until(run, 'awaiting_approval');
    const cards = await cardsOf(started, run);
    await decideCard(started, cardFor(cards, 'right'), { verdict: 'approve' });
    await decideCard(started, cardFor(cards, 'left'), { verdict: 'reject', words: 'no' });
    await started.until(run, 'completed');
    expect(await started.output(run)).toBe('left refused and right paid');
    expect(await effects(provider)).toEqual({ right: 1 });
  });

  it('an ungated effect of one nested agent happens once, although the run pauses for the other', async () => {
    const free = payAction(provider, { name: 'free', approval: null });
    const gated = payAction(provider);
    const { start, until, decideAll } = await launch(
      crew(
        () =>
          named('outer', {
            tools: [
              as(named('left', { tools: [free] }), 'left'),
              as(named('right', { tools: [gated] }), 'right'),
            ],
          }),
        (agent, turn) => {
          if (agent === 'outer') return turn === 0 ? [ask('left'), ask('right')] : 'done';
          if (turn > 0) return `${agent} done`;
          return agent === 'left' ? [{ name: 'free', arguments: { to: 'free', amount: 0 } }] : [pay('a')];
        },
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    expect(await effects(provider)).toEqual({ free: 1 });
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ free: 1, a: 1 });
  });
});
