import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { refusalText } from '../../src/actions/index.ts';
import type { Workflow } from '../../src/index.ts';
import type { Turn } from '../fixtures/scripted.ts';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { dispatches, effects, payAction, payment } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { argumentsOf, cardsOf } from '../support/reviewer.ts';

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
  fleet = await createFleet([made], { name: 'arguments', backend: 'redis' });
  await Promise.all([fleet.relay(), fleet.worker()]);
  return fleet;
}

const REFUSED = refusalText('ARGUMENTS_REFUSED');
const UNSTABLE = refusalText('ARGUMENTS_NOT_STABLE');
const GOOD = { to: 'a', amount: 1 };
const nested = (depth: number) => `${'{"to":'.repeat(depth)}"a"${'}'.repeat(depth)}`;

/** Texts that two honest readers could read differently, or that are not the tool's arguments at all (S19). */
const HOSTILE: [string, string][] = [
  ['a duplicate key', '{"to":"evil","to":"a","amount":1}'],
  ['a duplicate key after unescaping', '{"to":"evil","\\u0074o":"a","amount":1}'],
  ['an integer beyond 2^53', '{"to":"a","amount":9007199254740993}'],
  ['a number with more digits than a double', '{"to":"a","amount":10.0000000000000000001}'],
  ['a number beyond a double', '{"to":"a","amount":1e400}'],
  ['an escaped lone surrogate', '{"to":"\\ud800","amount":1}'],
  ['a raw lone surrogate', '{"to":"\ud800","amount":1}'],
  ['an escaped NUL', '{"to":"a\\u0000","amount":1}'],
  ['a raw NUL', '{"to":"a\u0000","amount":1}'],
  ['a __proto__ key', '{"__proto__":{"to":"evil"},"to":"a","amount":1}'],
  ['40 levels of nesting', nested(40)],
  ['4,000 levels of nesting', nested(4_000)],
  ['300 kB', JSON.stringify({ ...GOOD, pad: 'x'.repeat(300_000) })],
  ['no JSON', 'pay alice, please'],
  ['nothing', ''],
  ['a trailing comma', '{"to":"a","amount":1,}'],
  ['two documents', '{"to":"a","amount":1}{"to":"evil","amount":2}'],
  ['an array', '[{"to":"a","amount":1}]'],
  ['a string', '"{\\"to\\":\\"a\\",\\"amount\\":1}"'],
  ['null', 'null'],
  ['a missing field', '{"to":"a"}'],
  ['a field of another type', '{"to":"a","amount":"1"}'],
];

/** One fleet for many texts: its model writes whatever `text` is at the moment. */
function sharedFleet(
  tools: () => ReturnType<typeof payAction>[],
  script: (turn: number, text: string) => Turn,
) {
  const shared = { text: '', heard: [] as string[][], fleet: undefined as unknown as Fleet };
  beforeAll(async () => {
    shared.fleet = await createFleet(
      [
        crew(
          () => named('payer', { tools: tools() }),
          (_agent, turn, results) => {
            shared.heard.push(results);
            return script(turn, shared.text);
          },
        ),
      ],
      { name: 'arguments', backend: 'redis' },
    );
    await Promise.all([shared.fleet.relay(), shared.fleet.worker()]);
  });
  afterAll(() => shared.fleet?.close());
  return shared;
}

describe.each([
  ['a gated action', undefined],
  ['an action that needs no decision', null],
] as const)('hostile arguments for %s (S19)', (_name, approval) => {
  const shared = sharedFleet(
    () => [payAction(provider, approval === null ? { approval } : {})],
    (turn, text) => (turn < 2 ? [{ name: 'pay', arguments: turn === 0 ? text : GOOD }] : 'done'),
  );

  it.each(HOSTILE)(
    '%s: no approval, no effect, a fixed text; the next, correct call works',
    async (_what, text) => {
      Object.assign(shared, { text, heard: [] });
      const { start, until, decideAll, rows } = shared.fleet;
      const run = await start({ workflow: 'agents' });
      if (approval === undefined) {
        await until(run, 'awaiting_approval');
        expect(await dispatches(provider)).toBe(0);
        expect((await cardsOf(shared.fleet, run)).map(argumentsOf)).toEqual([GOOD]);
        await decideAll(run, 'approve');
      }
      await until(run, 'completed');
      expect(shared.heard[1]).toEqual([REFUSED]);
      expect(await effects(provider)).toEqual({ a: 1 });
      expect(await dispatches(provider)).toBe(1);
      expect(
        await rows(
          'select state, reason, attempt from countersign.actions where run_id = $1 order by created_at',
          [run],
        ),
      ).toEqual([
        { state: 'not_executed', reason: 'ARGUMENTS_REFUSED', attempt: 0 },
        { state: 'succeeded', reason: null, attempt: 1 },
      ]);
    },
  );
});

describe('hostile arguments beside a good gated call', () => {
  const shared = sharedFleet(
    () => [payAction(provider)],
    (turn, text) =>
      turn === 0
        ? [text, GOOD].map((written) => ({ name: 'pay', arguments: written, callId: 'c1' }))
        : 'done',
  );

  it.each(HOSTILE)('%s: one card, one effect, and each call hears its own answer', async (_what, text) => {
    Object.assign(shared, { text, heard: [] });
    const { start, until, decideAll } = shared.fleet;
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    expect(await decideAll(run, 'approve')).toBe(1);
    await until(run, 'completed');
    expect(shared.heard[1]).toHaveLength(2);
    expect(shared.heard[1]?.filter((result) => result === REFUSED)).toHaveLength(1);
    expect(await effects(provider)).toEqual({ a: 1 });
  });
});

describe('arguments that are no JSON', () => {
  it('inside an agent used as a tool, the inner model hears the refusal and may try again', async () => {
    const heard: string[][] = [];
    const { start, until, decideAll } = await launch(
      crew(
        () => {
          const inner = named('inner', { tools: [payAction(provider)] });
          return named('outer', { tools: [inner.asTool({ toolName: 'inner', toolDescription: 'inner' })] });
        },
        (agent, turn, results) => {
          if (agent === 'outer') return turn === 0 ? [{ name: 'inner', arguments: { input: 'x' } }] : 'done';
          heard.push(results);
          return turn < 2 ? [{ name: 'pay', arguments: turn === 0 ? 'not JSON' : GOOD }] : 'inner done';
        },
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(heard[1]).toEqual([REFUSED]);
    expect(await effects(provider)).toEqual({ a: 1 });
  });

  it('a model that never learns is stopped by the turn limit, without a single approval', async () => {
    let asked = 0;
    const { start, until, rows } = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider)] }),
        () => {
          asked += 1;
          return [{ name: 'pay', arguments: 'not JSON' }];
        },
        { maxTurns: 5 },
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'failed');
    expect(await rows('select reason from countersign.runs')).toEqual([{ reason: 'RUN_FAILED' }]);
    expect(await rows('select 1 from countersign.approvals')).toEqual([]);
    expect(asked).toBe(5);
  });
});

describe('schemas', () => {
  const withExtra = (extra: z.ZodType) => ({ parameters: payment.extend({ extra }) as never });

  /** A run whose model passes `extra` on, then hears what became of it. */
  function passing(extra: z.ZodType, given: unknown[]) {
    const heard: string[][] = [];
    const executed: unknown[] = [];
    const pay = payAction(provider, {
      ...withExtra(extra),
      execute: (args, { operationKey, signal }) => {
        executed.push(args);
        return provider.client.create(`pay-${args.to}`, args, { idempotencyKey: operationKey, signal });
      },
    });
    const made = crew(
      () => named('payer', { tools: [pay] }),
      (_agent, turn, results) => {
        heard.push(results);
        const value = given[turn];
        return turn < given.length
          ? [{ name: 'pay', arguments: value === ABSENT ? GOOD : { ...GOOD, extra: value } }]
          : 'done';
      },
    );
    return { made, heard, executed };
  }
  const ABSENT = Symbol('absent');

  it.each([
    ['a default of the time', z.string().default(() => new Date().toISOString())],
    ['a random default', z.string().default(() => randomUUID())],
    ['a random replacement', z.number().catch(() => Math.random())],
    ['a transform to a Date', z.string().transform((text) => new Date(text))],
    ['a transform to a Map', z.string().transform(() => new Map())],
    ['a coerced Date', z.coerce.date()],
    ['a BigInt', z.bigint()],
  ] as [string, z.ZodType][])('with %s are refused when the action is defined', (_what, extra) => {
    expect(() => payAction(provider, withExtra(extra))).toThrow(
      expect.objectContaining({ code: 'ACTION_INVALID', details: { action: 'pay', field: 'parameters' } }),
    );
  });

  it.each([
    ['a random value', z.preprocess(() => randomUUID(), z.string())],
    ['a Date', z.preprocess((text) => new Date(String(text)), z.any())],
    ['a BigInt', z.preprocess(() => 1n, z.any())],
    ['a Map', z.preprocess(() => new Map(), z.any())],
    ['undefined where JSON has nothing like it', z.preprocess(() => [undefined], z.any())],
  ] as [string, z.ZodType][])(
    'that make %s of the same text are refused as not stable: no approval, no effect',
    async (_what, extra) => {
      const { made, heard } = passing(extra, ['2030-01-01']);
      const { start, until, rows } = await launch(made);
      await until(await start({ workflow: 'agents' }), 'completed');
      expect(heard[1]).toEqual([UNSTABLE]);
      expect(await rows('select 1 from countersign.approvals')).toEqual([]);
      expect(await dispatches(provider)).toBe(0);
    },
  );

  it.each([
    ['refinement', z.string().refine((text) => new URL(text).protocol === 'http:')],
    ['preprocessing', z.preprocess((text) => new URL(String(text)).href, z.string())],
  ] as [string, z.ZodType][])(
    'whose %s throws for what a model wrote refuse it, and the run goes on',
    async (_what, extra) => {
      const { made, heard } = passing(extra, ['nowhere', 'http://x/']);
      const { start, until, decideAll } = await launch(made);
      const run = await start({ workflow: 'agents' });
      await until(run, 'awaiting_approval', 5_000);
      expect(heard[1]).toEqual([REFUSED]);
      await decideAll(run, 'approve');
      await until(run, 'completed');
      expect(await effects(provider)).toEqual({ a: 1 });
    },
  );

  it.each([
    ['an optional text', z.string().optional(), GOOD],
    ['a text with a default', z.string().default('EUR'), { ...GOOD, extra: 'EUR' }],
    ['an optional object', z.object({ memo: z.string() }).optional(), GOOD],
    ['a nullable text', z.string().nullable(), { ...GOOD, extra: null }],
  ] as [string, z.ZodType, unknown][])(
    'with %s read the null that a strict model sends for "left out" as the SDK does',
    async (_what, extra, effective) => {
      const { made, executed } = passing(extra, [null]);
      const { start, until, decideAll } = await launch(made);
      const run = await start({ workflow: 'agents' });
      await until(run, 'awaiting_approval', 5_000);
      expect((await cardsOf(fleet as Fleet, run)).map(argumentsOf)).toEqual([effective]);
      await decideAll(run, 'approve');
      await until(run, 'completed');
      expect(executed).toEqual([effective]);
    },
  );

  it('with optional fields deep inside read such nulls there too, and refuse a null that is required', async () => {
    const deep = z.array(z.object({ id: z.string(), memo: z.string().optional() }));
    const { made, heard, executed } = passing(deep, [[{ id: null, memo: 'x' }], [{ id: 'i', memo: null }]]);
    const { start, until, decideAll } = await launch(made);
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval', 5_000);
    expect(heard[1]).toEqual([REFUSED]);
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(executed).toEqual([{ ...GOOD, extra: [{ id: 'i' }] }]);
  });

  it('with a field that was left out after all are content with that', async () => {
    const { made, executed } = passing(z.string().optional(), [ABSENT]);
    const { start, until, decideAll } = await launch(made);
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval', 5_000);
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(executed).toEqual([GOOD]);
  });
});
