/**
 * The workflows of the scenarios. A run's prompt is the mark of its schedule, and every effect carries it, so that an
 * effect can be traced to its schedule whatever became of the run. The model is scripted: the same conversation gets
 * the same answer, in whatever process and however often.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, type ModelRequest, type Tool, tool } from '@openai/agents';
import { z } from 'zod';
import type { ReleaseClient } from '../examples/release-service/index.ts';
import {
  type ActionCall,
  action,
  httpEffect,
  idempotent,
  lookup,
  manual,
  transactional,
  type Workflow,
  workflow,
} from '../src/index.ts';
import { resultsIn, scriptedModel, scriptedProvider, type Turn } from '../test/fixtures/scripted.ts';
import type { Pace } from './pace.ts';

export const VERSION = '1';

const payment = z.object({ mark: z.string(), to: z.string(), amount: z.number() });
export type Payment = z.output<typeof payment>;

/** Kinds at the provider. It forgets the keys of all but `idempotent`, so that a second request is a second effect. */
export const PROVIDER_KINDS = ['idempotent', 'lookup', 'manual'] as const;

/** One payment tool for each recovery kind, gated or not. The effect of a transactional one is a row of `effects`. */
function payTools(provider: ReleaseClient, pace: Pace, gated: boolean) {
  const send =
    (kind: string) =>
    (args: Payment, { operationKey, signal, inTime }: ActionCall) =>
      httpEffect({ url: `${provider.url}/effects/${kind}`, body: args, operationKey, signal, inTime });
  const common = {
    description: 'Pay somebody',
    parameters: payment,
    target: ({ to }: Payment) => to,
    review: ({ to, amount }: Payment) => ({ summary: `Pay ${amount} to ${to}` }),
    approval: gated ? { policy: 'payments' } : null,
    sendWithin: pace.sendWithinMs,
    callTimeout: pace.callTimeoutMs,
  };
  return {
    lookup: action({
      ...common,
      name: 'pay_lookup',
      execute: send('lookup'),
      recovery: lookup(async ({ operationKey }) => (await provider.find('lookup', operationKey)).effects[0], {
        settlesWithin: pace.settlesWithinMs,
      }),
    }),
    idempotent: action({
      ...common,
      name: 'pay_idempotent',
      execute: send('idempotent'),
      recovery: idempotent({ keyLifetime: '24h' }),
    }),
    manual: action({ ...common, name: 'pay_manual', execute: send('manual'), recovery: manual() }),
    transactional: action({
      ...common,
      name: 'pay_transactional',
      execute: async (args, { operationKey, tx }) => {
        await tx.query('insert into public.effects (key, body) values ($1, $2)', [operationKey, args]);
        return { paid: args.amount };
      },
      recovery: transactional(),
    }),
  };
}

type Kind = 'lookup' | 'idempotent' | 'manual' | 'transactional';

const call = (kind: Kind, mark: string, to: string, amount = 1) => ({
  name: `pay_${kind}`,
  arguments: { mark, to, amount },
});

/** What the user said first: the mark. */
function markOf({ input }: ModelRequest): string {
  const said =
    typeof input === 'string' ? input : input.find((item) => 'role' in item && item.role === 'user');
  if (typeof said === 'string') {
    return said;
  }
  const content = said !== undefined && 'content' in said ? said.content : '';
  return typeof content === 'string'
    ? content
    : content.map((part) => ('text' in part ? part.text : '')).join('');
}

type Script = (turn: number, mark: string, request: ModelRequest) => Turn | Promise<Turn>;

function played(name: string, script: Script, agent: () => Agent): Workflow {
  const model = scriptedModel((turn, request) => script(turn, markOf(request), request));
  return workflow({ name, version: VERSION, agent, modelProvider: scriptedProvider(model) });
}

const ended = (request: ModelRequest) => `told ${resultsIn(request).length} results`;

/** Built by each process of a lane that carries runs or asks about actions. */
export function matrixWorkflows(provider: ReleaseClient, pace: Pace): Workflow[] {
  const gated = payTools(provider, pace, true);
  const free = payTools(provider, pace, false);
  const single = (kind: Kind) =>
    played(
      kind,
      (turn, mark, request) => (turn === 0 ? [call(kind, mark, 'a')] : ended(request)),
      () => new Agent({ name: kind, tools: [gated[kind]] as Tool[] }),
    );
  const parallel = played(
    'parallel',
    (turn, mark, request) =>
      turn === 0
        ? [call('lookup', mark, 'a'), call('idempotent', mark, 'b'), call('lookup', mark, 'c')]
        : ended(request),
    () => new Agent({ name: 'parallel', tools: [gated.lookup, gated.idempotent] }),
  );
  const segments = played(
    'segments',
    (turn, mark, request) =>
      turn < 2 ? [call('lookup', mark, turn === 0 ? 'a' : 'b', turn + 1)] : ended(request),
    () => new Agent({ name: 'segments', tools: [gated.lookup] }),
  );
  return [
    single('lookup'),
    single('idempotent'),
    single('manual'),
    single('transactional'),
    parallel,
    segments,
    nested(gated.lookup),
    recorded(free.idempotent, pace),
    stumbling(gated.lookup),
    hopeless(gated.lookup, provider),
    drifting(gated.lookup, pace),
  ];
}

/** An agent used as a tool, whose inner call needs the decision. */
function nested(pay: Tool): Workflow {
  return played(
    'nested',
    (turn, mark, request) => {
      if (request.systemInstructions === 'outer') {
        return turn === 0 ? [{ name: 'inner', arguments: { input: mark } }] : ended(request);
      }
      return turn === 0 ? [call('lookup', mark, 'a')] : 'paid';
    },
    () => {
      const inner = new Agent({ name: 'inner', instructions: 'inner', tools: [pay] });
      return new Agent({
        name: 'outer',
        instructions: 'outer',
        tools: [inner.asTool({ toolName: 'inner', toolDescription: 'Pays' })],
      });
    },
  );
}

/** A plain tool that takes long enough for heartbeats. */
const slowTool = (pace: Pace) =>
  tool({
    name: 'read_balance',
    description: 'Read the balance',
    parameters: z.object({ account: z.string() }),
    execute: async ({ account }) => {
      await sleep(pace.ttlMs);
      return `${account}: 100`;
    },
  });
const readBalance = { name: 'read_balance', arguments: { account: 'main' } };

/** Beside the slow tool an action that needs nobody's decision. */
function recorded(pay: Tool, pace: Pace): Workflow {
  return played(
    'recorded',
    (turn, mark, request) => {
      if (turn === 0) {
        return [readBalance, call('idempotent', mark, 'a')];
      }
      return ended(request);
    },
    () => new Agent({ name: 'recorded', tools: [slowTool(pace), pay] }),
  );
}

/** A model that fails once in each process before it reports. */
function stumbling(pay: Tool): Workflow {
  const stumbled = new Set<string>();
  return played(
    'stumbling',
    (turn, mark, request) => {
      if (turn === 0) {
        return [call('lookup', mark, 'a')];
      }
      if (!stumbled.has(mark)) {
        stumbled.add(mark);
        throw new Error('the model has a bad moment');
      }
      return ended(request);
    },
    () => new Agent({ name: 'stumbling', tools: [pay] }),
  );
}

/** At the provider: the permission without which the model of `hopeless` answers nothing after its call. */
export const PERMISSION = 'permission';

/** A model that fails until somebody puts it right, so that the run is given up in between. */
function hopeless(pay: Tool, provider: ReleaseClient): Workflow {
  return played(
    'hopeless',
    async (turn, mark, request) => {
      if (turn === 0) {
        return [call('lookup', mark, 'a')];
      }
      if (!(await provider.find(PERMISSION, mark)).found) {
        throw new Error('the model is out of order');
      }
      return ended(request);
    },
    () => new Agent({ name: 'hopeless', tools: [pay] }),
  );
}

/**
 * Instructions that are never the same twice, and a model that fails once: the segment is run again and asks its model
 * something else than the journal has, where nothing was sent yet.
 */
function drifting(pay: Tool, pace: Pace): Workflow {
  let asked = process.pid;
  // Which of these tools are on offer is a number in binary that grows with every question: no two are the same.
  const offers = Array.from({ length: 8 }, (_, bit) =>
    tool({
      name: `offer_${bit}`,
      description: 'nothing',
      parameters: z.object({}),
      isEnabled: () => {
        asked += bit === 0 ? 1 : 0;
        return ((asked >> bit) & 1) === 1;
      },
      execute: () => '',
    }),
  );
  const stumbled = new Set<string>();
  return played(
    'drifting',
    (turn, mark, request) => {
      if (turn === 0) {
        return [readBalance];
      }
      if (!stumbled.has(mark)) {
        stumbled.add(mark);
        throw new Error('the model has a bad moment');
      }
      return turn === 1 ? [call('lookup', mark, 'a')] : ended(request);
    },
    () => new Agent({ name: 'drifting', tools: [...offers, slowTool(pace), pay] }),
  );
}
