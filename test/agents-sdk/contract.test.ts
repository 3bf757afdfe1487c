/**
 * What our safety leans on in @openai/agents, each as one test. When an upgrade turns one red, the code named beside it
 * has to be thought through again before the version is taken.
 */
import {
  type Agent,
  type Model,
  RunContext,
  Runner,
  RunState,
  ToolCallError,
  tool,
  UserError,
} from '@openai/agents';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { assertUngated, STATE_SCHEMA } from '../../src/agents-sdk/index.ts';
import { openContext, workflow } from '../../src/workflows/index.ts';
import { resultsIn, scriptedModel, type Turn } from '../fixtures/scripted.ts';
import { named } from '../support/crew.ts';

const runnerFor = (model: Model) =>
  new Runner({ modelProvider: { getModel: () => model }, tracingDisabled: true });

type Script = (agent: string, turn: number, results: string[]) => Turn;
const modelOf = (script: Script) =>
  scriptedModel((turn, request) => script(request.systemInstructions ?? '', turn, resultsIn(request)));

/** An agent with one gated tool that counts its executions. */
function gated(needsApproval: boolean | ((amount: number) => boolean) = true) {
  const executed: number[] = [];
  const pay = tool({
    name: 'pay',
    description: 'Pay',
    parameters: z.object({ amount: z.number() }),
    needsApproval:
      typeof needsApproval === 'boolean'
        ? needsApproval
        : async (_context, { amount }) => needsApproval(amount),
    execute: ({ amount }) => {
      executed.push(amount);
      return `paid ${amount}`;
    },
  });
  return { agent: named('payer', { tools: [pay] }), executed };
}

const payOnce: Script = (_agent, turn, results) =>
  turn === 0 ? [{ name: 'pay', arguments: { amount: 500 } }] : results.join();

describe('a RunState (src/checkpoints, src/agents-sdk/open-state.ts)', () => {
  it('carries the schema version that this build announces', async () => {
    const { agent } = gated();
    const { state } = await runnerFor(modelOf(payOnce)).run(agent, 'go');
    expect(`openai-agents/${JSON.parse(state.toString()).$schemaVersion}`).toBe(STATE_SCHEMA);
  });

  it('of an unknown schema version is refused, but by an error that looks like any misuse', async () => {
    const { agent } = gated();
    const { state } = await runnerFor(modelOf(payOnce)).run(agent, 'go');
    const later = state.toString().replace(/"\$schemaVersion":"[^"]+"/, '"$schemaVersion":"99.0"');
    await expect(RunState.fromString(agent, later)).rejects.toBeInstanceOf(UserError);
  });

  it('restored twice executes twice: nothing in it says that it was used (why the ledger exists)', async () => {
    const { agent, executed } = gated();
    const model = modelOf(payOnce);
    const { state, interruptions } = await runnerFor(model).run(agent, 'go');
    state.approve(interruptions[0] as never);
    const text = state.toString();
    for (let time = 0; time < 2; time += 1) {
      await runnerFor(model).run(agent, await RunState.fromString(agent, text));
    }
    expect(executed).toEqual([500, 500]);
  });

  it('is not authenticated: edited everywhere, the edited call runs (why checkpoints are sealed)', async () => {
    const { agent, executed } = gated();
    const model = modelOf(payOnce);
    const { state } = await runnerFor(model).run(agent, 'go');
    const edited = await RunState.fromString(
      agent,
      state.toString().replaceAll('\\"amount\\":500', '\\"amount\\":999'),
    );
    edited.approve(edited.getInterruptions()[0] as never);
    await runnerFor(model).run(agent, edited);
    expect(executed).toEqual([999]);
  });

  it('does not keep whether a call needs approval: a loosened rule runs the undecided call', async () => {
    const strict = gated((amount) => amount > 100);
    const loose = gated((amount) => amount > 1_000);
    const model = modelOf(payOnce);
    const { state } = await runnerFor(model).run(strict.agent, 'go');
    await runnerFor(model).run(loose.agent, await RunState.fromString(loose.agent, state.toString()));
    expect(loose.executed).toEqual([500]);
  });

  it('given a new context by merge keeps its approvals and uses the new context; by replace it loses them', async () => {
    const { agent, executed } = gated();
    const model = modelOf(payOnce);
    const { state, interruptions } = await runnerFor(model).run(agent, 'go', { context: { key: 'old' } });
    state.approve(interruptions[0] as never);
    const text = state.toString();
    const fresh = { key: 'new' };
    const replaced = await RunState.fromStringWithContext(agent, text, new RunContext(fresh), {
      contextStrategy: 'replace',
    });
    expect((await runnerFor(model).run(agent, replaced)).interruptions).toHaveLength(1);
    const merged = await RunState.fromStringWithContext(agent, text, new RunContext(fresh), {
      contextStrategy: 'merge',
    });
    const done = await runnerFor(model).run(agent, merged);
    expect(executed).toEqual([500]);
    expect(done.state._context.context).toBe(fresh);
  });

  it('given a new context starts its usage at zero: a run’s usage is the sum over its segments', async () => {
    const { agent } = gated();
    const model = modelOf(payOnce);
    const { state } = await runnerFor(model).run(agent, 'go');
    expect(state.usage.requests).toBe(1);
    const opened = await RunState.fromStringWithContext(agent, state.toString(), new RunContext({}), {
      contextStrategy: 'merge',
    });
    opened.approve(opened.getInterruptions()[0] as never);
    expect((await runnerFor(model).run(agent, opened)).state.usage.requests).toBe(1);
  });
});

describe('a context (src/workflows/context.ts)', () => {
  const SECRET = 'sk-contract';
  const inner = () => gated().agent;
  const nestedOuter = () =>
    named('outer', { tools: [inner().asTool({ toolName: 'inner', toolDescription: 'inner' })] });
  const nestedScript: Script = (agent, turn, results) =>
    agent === 'outer'
      ? turn === 0
        ? [{ name: 'inner', arguments: { input: 'go' } }]
        : results.join()
      : payOnce(agent, turn, results);

  it('as it is lands in the state, nested states included', async () => {
    const { state } = await runnerFor(modelOf(nestedScript)).run(nestedOuter(), 'go', {
      context: { key: SECRET },
    });
    expect(state.toString().split(SECRET).length).toBeGreaterThan(2);
  });

  it('as a workflow gets it lands in no state, and tools still read and write it', async () => {
    const flow = workflow({
      name: 'w',
      version: '1',
      agent: nestedOuter,
      provide: () => ({ key: SECRET, big: 1n, nested: new Map([['key', SECRET]]) }),
    });
    const context = (await openContext(flow, {}, { tenant: 't', runId: 'r' })) as {
      key: string;
      more?: string;
    };
    const { state, interruptions } = await runnerFor(modelOf(nestedScript)).run(nestedOuter(), 'go', {
      context,
    });
    expect(interruptions).toHaveLength(1);
    context.more = SECRET;
    expect(state.toString()).not.toContain(SECRET);
    expect(JSON.stringify({ context })).toBe('{"context":{}}');
    expect({ key: context.key, more: context.more, has: 'more' in context }).toEqual({
      key: SECRET,
      more: SECRET,
      has: true,
    });
  });
});

describe('a decision (src/runs/decisions.ts)', () => {
  it('to reject reaches the model in the given words, through a round trip of the state', async () => {
    const { agent, executed } = gated();
    const model = modelOf(payOnce);
    const { state } = await runnerFor(model).run(agent, 'go');
    const opened = await RunState.fromString(agent, state.toString());
    opened.reject(opened.getInterruptions()[0] as never, { message: 'not on a Friday' });
    expect((await runnerFor(model).run(agent, opened)).finalOutput).toBe('not on a Friday');
    expect(executed).toEqual([]);
  });

  it('to always approve lets every later call run unseen (why it is used nowhere)', async () => {
    const { agent, executed } = gated();
    const model = modelOf((_agent, turn) =>
      turn < 2 ? [{ name: 'pay', arguments: { amount: turn } }] : 'done',
    );
    const { state, interruptions } = await runnerFor(model).run(agent, 'go');
    state.approve(interruptions[0] as never, { alwaysApprove: true });
    expect((await runnerFor(model).run(agent, state)).interruptions).toEqual([]);
    expect(executed).toEqual([0, 1]);
  });

  it('is asked for when arguments are no object, whatever a rule says, and then answered in the SDK’s own words', async () => {
    const { agent } = gated(() => false);
    const model = modelOf((_agent, turn, results) =>
      turn === 0 ? [{ name: 'pay', arguments: 'no JSON' }] : results.join(),
    );
    const { state, interruptions } = await runnerFor(model).run(agent, 'go');
    expect(interruptions).toHaveLength(1);
    state.reject(interruptions[0] as never, { message: 'our words' });
    expect((await runnerFor(model).run(agent, state)).finalOutput).not.toBe('our words');
  });
});

describe('a tool whose invoke is replaced (src/agents-sdk/guarded-tool.ts)', () => {
  const replaced = (name: string, invoke: (signal: AbortSignal | undefined) => Promise<string>) => {
    const made = tool({ name, description: name, parameters: z.object({}), execute: () => 'never' });
    made.invoke = (_context, _text, details) => invoke(details?.signal);
    return made;
  };
  const call =
    (...names: string[]): Script =>
    (_agent, turn) =>
      turn === 0 ? names.map((name) => ({ name, arguments: {} })) : 'done';

  it('and throws surfaces as a ToolCallError that holds our error; no text is made of it', async () => {
    class Ours extends Error {}
    const ours = new Ours('stop');
    const agent = named('a', { tools: [replaced('bad', () => Promise.reject(ours))] });
    const failed: unknown = await runnerFor(modelOf(call('bad')))
      .run(agent, 'go')
      .catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(ToolCallError);
    expect((failed as ToolCallError).error).toBe(ours);
  });

  it('is handed exactly the text and the call id of the model', async () => {
    const seen: unknown[] = [];
    const made = tool({
      name: 'exact',
      description: '',
      parameters: z.object({ a: z.number() }),
      execute: () => '',
    });
    made.invoke = async (_context, text, details) => {
      seen.push(text, details?.toolCall?.callId);
      return 'ok';
    };
    const text = '{ "a": 1.0e1 , "extra":true}';
    const model = modelOf((_agent, turn) =>
      turn === 0 ? [{ name: 'exact', arguments: text, callId: 'c-7' }] : 'done',
    );
    await runnerFor(model).run(named('a', { tools: [made] }), 'go');
    expect(seen).toEqual([text, 'c-7']);
  });

  it('and throws aborts its siblings’ signal, and the run waits for them before it rejects', async () => {
    const order: string[] = [];
    const slow = replaced('slow', async (signal) => {
      await new Promise((resolve) => setTimeout(resolve, 60));
      order.push(`slow settled, aborted: ${signal?.aborted}`);
      return 'ok';
    });
    const bad = replaced('bad', async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      throw new Error('stop');
    });
    const agent = named('a', { tools: [slow, bad] });
    await runnerFor(modelOf(call('slow', 'bad')))
      .run(agent, 'go')
      .catch(() => order.push('run rejected'));
    expect(order).toEqual(['slow settled, aborted: true', 'run rejected']);
  });

  it('would otherwise have its throw turned into an invitation to try again', async () => {
    const agent = named('a', {
      tools: [
        tool({
          name: 'bad',
          description: '',
          parameters: z.object({}),
          execute: () => {
            throw new Error('after the effect');
          },
        }),
      ],
    });
    const model = modelOf((_agent, turn, results) =>
      turn === 0 ? [{ name: 'bad', arguments: {} }] : results.join(),
    );
    expect((await runnerFor(model).run(agent, 'go')).finalOutput).toContain('try again');
  });
});

describe('the graph and its models (src/agents-sdk/graph.ts, model.ts)', () => {
  it('a nested agent asks the outer runner’s provider; a model instance wins over both', async () => {
    const own = modelOf(() => 'from the instance');
    const shared = modelOf((agent, turn, results) =>
      agent === 'outer' && turn === 0
        ? ['plain', 'instance'].map((name) => ({ name, arguments: { input: 'x' } }))
        : agent === 'outer'
          ? results.join(', ')
          : 'from the provider',
    );
    const as = (agent: Agent<unknown, 'text'>) =>
      agent.asTool({ toolName: agent.name, toolDescription: agent.name });
    const outer = named('outer', { tools: [as(named('plain')), as(named('instance', { model: own }))] });
    expect((await runnerFor(shared).run(outer, 'go')).finalOutput).toBe(
      'from the provider, from the instance',
    );
  });

  it('a tool with a constant rule can be told from one with a rule of its author', async () => {
    const make = (needsApproval?: boolean | (() => Promise<boolean>)) =>
      tool({
        name: 't',
        description: '',
        parameters: z.object({}),
        execute: () => '',
        ...(needsApproval === undefined ? {} : { needsApproval }),
      });
    for (const harmless of [make(), make(false)]) {
      await expect(assertUngated(harmless as never, 'w')).resolves.toBeUndefined();
    }
    for (const risky of [make(true), make(async () => false)]) {
      await expect(assertUngated(risky as never, 'w')).rejects.toMatchObject({ code: 'TOOL_NOT_GUARDED' });
    }
  });

  it('an optional field is told to a model as required and nullable (src/actions/arguments.ts)', () => {
    const made = tool({
      name: 't',
      description: '',
      parameters: z.object({ memo: z.string().optional() }),
      execute: () => '',
    });
    expect(made.parameters).toMatchObject({
      required: ['memo'],
      properties: { memo: { anyOf: [{ type: 'string' }, { type: 'null' }] } },
    });
  });

  it('a model error after a tool has run carries no state (why results are stored at once)', async () => {
    const agent = named('a', {
      tools: [tool({ name: 't', description: '', parameters: z.object({}), execute: () => 'ok' })],
    });
    const model = modelOf((_agent, turn) => {
      if (turn === 0) return [{ name: 't', arguments: {} }];
      throw new Error('429');
    });
    const failed: unknown = await runnerFor(model)
      .run(agent, 'go')
      .catch((error: unknown) => error);
    expect((failed as { state?: unknown }).state).toBeUndefined();
  });
});
