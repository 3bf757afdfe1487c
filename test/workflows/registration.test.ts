import {
  Agent,
  applyPatchTool,
  codeInterpreterTool,
  computerTool,
  type FunctionTool,
  fileSearchTool,
  handoff,
  hostedMcpTool,
  type MCPServer,
  shellTool,
  tool,
  webSearchTool,
} from '@openai/agents';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { action, idempotent, lookup, manual, transactional, workflow } from '../../src/index.ts';
import { buildRegistry, type Workflow } from '../../src/workflows/index.ts';
import { named } from '../support/crew.ts';

const valid = {
  name: 'pay',
  description: 'Pay',
  parameters: z.object({ to: z.string() }),
  execute: () => 'paid',
  recovery: manual(),
};
type Loose = Record<string, unknown>;
const define = (settings: Loose) => action({ ...valid, ...settings } as unknown as typeof valid);
const plain = (settings: Loose = {}) =>
  tool({
    name: 'look',
    description: 'Look',
    parameters: z.object({ n: z.number() }),
    execute: () => 'seen',
    ...settings,
  } as never);
const wrap = (agent: () => unknown, settings: Loose = {}) =>
  workflow({ name: 'w', version: '1', agent, ...settings } as unknown as Parameters<typeof workflow>[0]);
const register = (...workflows: Workflow[]) => buildRegistry(workflows);
const withTools = (...tools: unknown[]) => wrap(() => named('agent', { tools: tools as FunctionTool[] }));

describe('an action that could not be carried to one effect is refused when it is defined', () => {
  it.each([
    ['without a recovery kind', { recovery: undefined }, 'recovery'],
    ['gated but without a recovery kind', { recovery: undefined, approval: { policy: 'p' } }, 'recovery'],
    ['with an invented recovery kind', { recovery: { kind: 'hope' } }, 'recovery'],
    ['without execute', { execute: undefined }, 'execute'],
    ['with a JSON schema instead of zod', { parameters: { type: 'object' } }, 'parameters'],
    ['with a zod schema that is no object', { parameters: z.string() }, 'parameters'],
    ['with an empty name', { name: '' }, 'name'],
    ['with a hostile name', { name: 'pay; drop' }, 'name'],
    ['with a name of 65 letters', { name: 'p'.repeat(65) }, 'name'],
    ['without a description', { description: undefined }, 'description'],
    ['with a number as version', { version: 2 }, 'version'],
    ['with an empty version', { version: '' }, 'version'],
    ['with a setting nobody knows', { needsApproval: true }, 'needsApproval'],
    ['with the SDK’s error function', { errorFunction: () => 'try again' }, 'errorFunction'],
    ['with a target that is no function', { target: 'acme' }, 'target'],
    ['with a review that is no function', { review: { summary: 'x' } }, 'review'],
    ['with a word as approval', { approval: 'always' }, 'approval'],
    ['with true as approval', { approval: true }, 'approval'],
    ['with a rule without a policy', { approval: {} }, 'approval.policy'],
    ['with a rule of an empty policy', { approval: { policy: '' } }, 'approval.policy'],
    ['with a NUL in the policy', { approval: { policy: 'a\u0000' } }, 'approval.policy'],
    ['with a misspelt rule', { approval: { policy: 'p', expireIn: '1m' } }, 'approval.expireIn'],
    ['with a quorum of 0', { approval: { policy: 'p', quorum: 0 } }, 'approval.quorum'],
    ['with a quorum of 17', { approval: { policy: 'p', quorum: 17 } }, 'approval.quorum'],
    ['with half a quorum', { approval: { policy: 'p', quorum: 1.5 } }, 'approval.quorum'],
    ['with no attempts', { attempts: 0 }, 'attempts'],
    ['with 101 attempts', { attempts: 101 }, 'attempts'],
  ] as [string, Loose, string][])('%s', (_what, settings, field) => {
    expect(() => define(settings)).toThrow(
      expect.objectContaining({ code: 'ACTION_INVALID', details: expect.objectContaining({ field }) }),
    );
  });

  it.each([
    '0s',
    '-1s',
    '1',
    'soon',
    '1w',
    '',
    0,
    -5,
    Number.NaN,
    Infinity,
    null,
    '0.4ms',
    '8d',
    '99999999d',
  ])('with %j as a time for one request', (duration) => {
    for (const field of ['sendWithin', 'callTimeout']) {
      const refused = expect.objectContaining({
        code: 'ACTION_INVALID',
        details: expect.objectContaining({ field }),
      });
      if (duration !== null) expect(() => define({ [field]: duration })).toThrow(refused);
    }
    expect(() => lookup(async () => null, { settlesWithin: duration as never })).toThrow(
      expect.objectContaining({ code: 'ACTION_INVALID' }),
    );
  });

  it.each(['0s', 'tomorrow', -1, '4000d'])('with %j as a time for people', (duration) => {
    for (const field of ['expiresIn', 'executeWithin']) {
      expect(() => define({ approval: { policy: 'p', [field]: duration } })).toThrow(
        expect.objectContaining({
          code: 'ACTION_INVALID',
          details: expect.objectContaining({ field: `approval.${field}` }),
        }),
      );
    }
    expect(() => idempotent({ keyLifetime: duration as never })).toThrow(
      expect.objectContaining({ code: 'ACTION_INVALID' }),
    );
  });

  it('with a recovery whose settings contradict or misspell', () => {
    for (const bad of [
      () => lookup(undefined as never),
      () => lookup(async () => null, { reissue: 'automatic' }),
      () => lookup(async () => null, { reissue: 'always' as never }),
      () => lookup(async () => null, { settleWithin: '1s' } as never),
      () => lookup(async () => null, { lookups: 0 }),
      () => lookup(async () => null, { lookups: 1.5 }),
      () => idempotent({ keyLifetme: '1d' } as never),
      () => idempotent(undefined as never),
    ]) {
      expect(bad).toThrow(expect.objectContaining({ code: 'ACTION_INVALID' }));
    }
  });

  it('but every documented shape is accepted', () => {
    for (const recovery of [
      manual(),
      transactional(),
      idempotent({ keyLifetime: '24h' }),
      lookup(async () => null),
      lookup(async () => null, { settlesWithin: '7d' }),
      lookup(async () => null, { lookups: 1_000 }),
    ]) {
      expect(() =>
        define({
          recovery,
          approval: null,
          sendWithin: '7d',
          callTimeout: 1,
          attempts: 100,
          version: '2.0-b',
        }),
      ).not.toThrow();
    }
    expect(() =>
      define({ approval: { policy: 'p', quorum: 16, expiresIn: '365d', executeWithin: 1 } }),
    ).not.toThrow();
  });
});

describe('a workflow is refused before its first run', () => {
  it.each([
    ['without a name', { name: '' }, 'name'],
    ['with a name that the claim could not compare', { name: 'a@b' }, 'name'],
    ['without a version', { version: undefined }, 'version'],
    ['with a number as version', { version: 1 }, 'version'],
    ['with an agent instead of a factory', { agent: named('x') }, 'agent'],
    ['with a context that is no zod object', { context: { a: 1 } }, 'context'],
    ['with a provide that is no function', { provide: {} }, 'provide'],
    [
      'with a model provider that is no function',
      { modelProvider: { getModel: () => null } },
      'modelProvider',
    ],
    ['with no turns', { maxTurns: 0 }, 'maxTurns'],
    ['with a setting nobody knows', { model: 'x' }, 'model'],
  ] as [string, Loose, string][])('%s', (_what, settings, field) => {
    expect(() => wrap(() => named('x'), settings)).toThrow(
      expect.objectContaining({ code: 'WORKFLOW_INVALID', details: expect.objectContaining({ field }) }),
    );
  });

  it('with nothing at all', () => {
    expect(() => workflow(undefined as never)).toThrow(expect.objectContaining({ code: 'WORKFLOW_INVALID' }));
    expect(() => action(undefined as never)).toThrow(expect.objectContaining({ code: 'ACTION_INVALID' }));
  });

  it('when its name and version are there twice, in whatever files', async () => {
    await expect(register(withTools(), withTools())).rejects.toMatchObject({ code: 'WORKFLOW_INVALID' });
  });

  it('when its factory gives no agent', async () => {
    for (const given of [undefined, null, {}, { name: 'agent', tools: [], handoffs: [] }, 'agent']) {
      await expect(register(wrap(() => given))).rejects.toMatchObject({ code: 'WORKFLOW_INVALID' });
    }
    await expect(register(wrap(async () => named('later')))).resolves.toBeDefined();
  });

  it('when two actions share a name, wherever in the graph they are', async () => {
    const again = named('again', { tools: [define({})] });
    await expect(register(withTools(define({}), define({})))).rejects.toMatchObject({
      code: 'WORKFLOW_INVALID',
    });
    await expect(
      register(wrap(() => named('first', { tools: [define({})], handoffs: [again] }))),
    ).rejects.toMatchObject({ code: 'WORKFLOW_INVALID' });
    await expect(
      register(withTools(define({}), again.asTool({ toolName: 'again', toolDescription: 'again' }))),
    ).rejects.toMatchObject({ code: 'WORKFLOW_INVALID' });
    const shared = define({});
    const twice = wrap(() => named('a', { tools: [shared], handoffs: [named('b', { tools: [shared] })] }));
    await expect(register(twice)).resolves.toBeDefined();
  });

  it('when an action and a plain tool share a name: the ledger would note what it does not carry', async () => {
    const made = wrap(() =>
      named('a', { tools: [define({})], handoffs: [named('b', { tools: [plain({ name: 'pay' })] })] }),
    );
    await expect(register(made)).rejects.toMatchObject({
      code: 'WORKFLOW_INVALID',
      details: { action: 'pay' },
    });
  });
});

/** One tool at every place where a graph can hide it. */
const places: [string, (hidden: unknown) => Workflow][] = [
  ['on the agent', (hidden) => withTools(hidden)],
  [
    'behind a handoff',
    (hidden) => wrap(() => named('a', { handoffs: [named('b', { tools: [hidden as FunctionTool] })] })),
  ],
  [
    'behind a handoff object',
    (hidden) =>
      wrap(() => named('a', { handoffs: [handoff(named('b', { tools: [hidden as FunctionTool] }))] })),
  ],
  [
    'on an agent used as a tool',
    (hidden) =>
      withTools(
        named('b', { tools: [hidden as FunctionTool] }).asTool({ toolName: 'b', toolDescription: 'b' }),
      ),
  ],
];

describe.each(places)('a tool outside the ledger, %s', (_place, hide) => {
  it.each([
    ['true', true],
    ['a function', async () => true],
    ['a function that lets small calls pass', async (_context: unknown, { n }: { n: number }) => n > 100],
    ['a function that is always false today', () => false],
    ['a function that throws', () => Promise.reject(new Error('no'))],
  ])('is refused if its own approval rule is %s', async (_what, needsApproval) => {
    await expect(register(hide(plain({ needsApproval })))).rejects.toMatchObject({
      code: 'TOOL_NOT_GUARDED',
    });
  });

  it('is accepted if it has no approval rule', async () => {
    await expect(register(hide(plain()))).resolves.toBeDefined();
    await expect(register(hide(plain({ needsApproval: false })))).resolves.toBeDefined();
  });

  it.each([
    ['web search', () => webSearchTool()],
    ['file search', () => fileSearchTool(['vs_1'])],
    ['a code interpreter', () => codeInterpreterTool()],
    ['a hosted MCP server', () => hostedMcpTool({ serverLabel: 'x', serverUrl: 'https://x' })],
    ['a computer', () => computerTool({ computer: { environment: 'browser', dimensions: [1, 1] } as never })],
    ['a shell', () => shellTool({ shell: { run: async () => ({ output: [] }) } as never })],
    ['a patch editor', () => applyPatchTool({ editor: {} as never })],
  ])('is refused if it is %s', async (_what, make) => {
    await expect(register(hide(make()))).rejects.toMatchObject({ code: 'HOSTED_TOOL_REFUSED' });
  });

  it('is refused if it is an agent used as a tool that asks for approval itself', async () => {
    const asking = named('c').asTool({ toolName: 'c', toolDescription: 'c', needsApproval: true });
    await expect(register(hide(asking))).rejects.toMatchObject({ code: 'TOOL_NOT_GUARDED' });
  });
});

describe('an MCP server', () => {
  it('is refused: its tools are made anew each turn, so nothing records or guards them', async () => {
    const server = {
      name: 'files',
      cacheToolsList: false,
      connect: async () => {},
      close: async () => {},
      listTools: async () => [],
    };
    await expect(
      register(wrap(() => named('a', { mcpServers: [server as unknown as MCPServer] }))),
    ).rejects.toMatchObject({ code: 'HOSTED_TOOL_REFUSED', details: { tool: 'files', agent: 'a' } });
  });
});

describe('the types', () => {
  it('accept every kind of agent that the SDK can make', () => {
    type Context = { user: string };
    const typed = new Agent({ name: 'typed', outputType: z.object({ a: z.string() }) });
    const made = [
      workflow({ name: 'a', version: '1', agent: () => typed }),
      workflow({ name: 'b', version: '1', agent: () => new Agent<Context>({ name: 'x' }) }),
      workflow({ name: 'c', version: '1', agent: async () => new Agent({ name: 'x' }) }),
      workflow({ name: 'd', version: '1', agent: () => Agent.create({ name: 'x', handoffs: [typed] }) }),
      workflow({
        name: 'e',
        version: '1',
        agent: () => Agent.create({ name: 'x', handoffs: [handoff(typed)] }),
      }),
    ];
    expect(made).toHaveLength(5);
  });

  it('let a look-up read its action’s arguments, named or not', () => {
    const parameters = z.object({ to: z.string() });
    const length = (to: string) => to.length;
    action({ ...valid, parameters, recovery: lookup(async ({ args }) => length(args.to)) });
    action({ ...valid, parameters, recovery: lookup<{ to: string }>(async ({ args }) => length(args.to)) });
  });
});
