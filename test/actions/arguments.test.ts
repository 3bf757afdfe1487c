import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { refusalText } from '../../src/actions/index.ts';
import { action, manual, type Workflow } from '../../src/index.ts';
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

describe.each([
  ['a gated action', undefined],
  ['an action that needs no decision', null],
] as const)('hostile arguments for %s (S19)', (_name, approval) => {
  it.each(HOSTILE)(
    '%s: no approval, no effect, a fixed text; the next, correct call works',
    async (_what, text) => {
      const heard: string[][] = [];
      const pay = payAction(provider, approval === null ? { approval } : {});
      const { start, until, decideAll, rows } = await launch(
        crew(
          () => named('payer', { tools: [pay] }),
          (_agent, turn, results) => {
            heard.push(results);
            if (turn < 2) return [{ name: 'pay', arguments: turn === 0 ? text : GOOD }];
            return 'done';
          },
        ),
      );
      const run = await start({ workflow: 'agents' });
      if (approval === undefined) {
        await until(run, 'awaiting_approval');
        expect(await dispatches(provider)).toBe(0);
        expect((await cardsOf(fleet as Fleet, run)).map(argumentsOf)).toEqual([GOOD]);
        await decideAll(run, 'approve');
      }
      await until(run, 'completed');
      expect(heard[1]).toEqual([REFUSED]);
      expect(await effects(provider)).toEqual({ a: 1 });
      expect(await dispatches(provider)).toBe(1);
      expect(
        await rows('select state, reason, attempt from countersign.actions order by created_at'),
      ).toEqual([
        { state: 'not_executed', reason: 'ARGUMENTS_REFUSED', attempt: 0 },
        { state: 'succeeded', reason: null, attempt: 1 },
      ]);
    },
  );
});

describe('hostile arguments beside a good gated call', () => {
  it.each(HOSTILE)('%s: one card, one effect, and each call hears its own answer', async (_what, text) => {
    let heard: string[] = [];
    const { start, until, decideAll } = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider)] }),
        (_agent, turn, results) => {
          heard = results;
          return turn === 0
            ? [
                { name: 'pay', arguments: text, callId: 'c1' },
                { name: 'pay', arguments: GOOD, callId: 'c1' },
              ]
            : 'done';
        },
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    expect(await decideAll(run, 'approve')).toBe(1);
    await until(run, 'completed');
    expect(heard).toHaveLength(2);
    expect(heard.filter((result) => result === REFUSED)).toHaveLength(1);
    expect(await effects(provider)).toEqual({ a: 1 });
  });

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

describe('schemas that do not give the same value twice', () => {
  const parsing = (extra: z.ZodType) => payment.extend({ extra });

  it.each([
    ['a transform to a Date', z.string().transform((text) => new Date(text)), '2030-01-01'],
    ['a transform to a BigInt', z.string().transform((text) => BigInt(text)), '1'],
    ['a transform to a Map', z.string().transform(() => new Map()), 'x'],
    ['a random transform', z.string().transform((text) => `${text}${randomUUID()}`), 'x'],
    ['a coerced Date', z.coerce.date(), '2030-01-01'],
  ] as [string, z.ZodType, string][])(
    '%s is refused as not stable, with no approval and no effect',
    async (_what, extra, given) => {
      let heard: string[] = [];
      const pay = payAction(provider, { parameters: parsing(extra) as never });
      const { start, until, rows } = await launch(
        crew(
          () => named('payer', { tools: [pay] }),
          (_agent, turn, results) => {
            heard = results;
            return turn === 0 ? [{ name: 'pay', arguments: { ...GOOD, extra: given } }] : 'done';
          },
        ),
      );
      const run = await start({ workflow: 'agents' });
      await until(run, 'completed');
      expect(heard).toEqual([UNSTABLE]);
      expect(await rows('select 1 from countersign.approvals')).toEqual([]);
      expect(await dispatches(provider)).toBe(0);
    },
  );

  it.each([
    ['the time', () => new Date().toISOString()],
    ['a random value', () => randomUUID()],
  ])(
    'a default of %s is refused when the action is defined, for its schema would differ in every process',
    (_what, value) => {
      expect(() => payAction(provider, { parameters: parsing(z.string().default(value)) as never })).toThrow(
        expect.objectContaining({ code: 'ACTION_INVALID', details: { action: 'pay', field: 'parameters' } }),
      );
    },
  );

  it('a schema that throws for what the model wrote refuses those arguments, and the run goes on', async () => {
    const heard: string[][] = [];
    const pay = payAction(provider, {
      parameters: payment.extend({ url: z.string().transform((text) => new URL(text).href) }) as never,
    });
    const { start, until, decideAll } = await launch(
      crew(
        () => named('payer', { tools: [pay] }),
        (_agent, turn, results) => {
          heard.push(results);
          return turn < 2
            ? [{ name: 'pay', arguments: { ...GOOD, url: turn === 0 ? 'nowhere' : 'http://x/' } }]
            : 'done';
        },
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval', 5_000);
    expect(heard[1]).toEqual([REFUSED]);
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
  });
});

describe('functions of the author', () => {
  const once = (settings: Parameters<typeof payAction>[1]) =>
    crew(
      () => named('payer', { tools: [payAction(provider, settings)] }),
      (_agent, turn) => (turn === 0 ? [{ name: 'pay', arguments: GOOD }] : 'done'),
    );

  it.each([
    ['target', { target: () => raise() }],
    ['approval', { approval: () => raise() }],
    ['review', { review: () => raise() }],
    ['target that is no text', { target: () => 7 as never }],
    ['approval that forgets to answer', { approval: () => undefined as never }],
    ['approval that answers later', { approval: async () => null }],
    ['review that is no JSON', { review: () => ({ summary: 'x', at: new Date() }) as never }],
  ] as [string, Parameters<typeof payAction>[1]][])(
    'a failing %s ends the run at once and without an effect',
    async (_what, settings) => {
      const { start, until, rows } = await launch(once(settings));
      const run = await start({ workflow: 'agents' });
      await until(run, 'failed', 5_000);
      const [row] = await rows<{ reason: string }>('select reason from countersign.runs');
      expect(['ACTION_INVALID', 'NOT_PLAIN_JSON']).toContain(row?.reason);
      expect(await dispatches(provider)).toBe(0);
      expect(await rows('select 1 from countersign.events where kind = $1', ['run_claimed'])).toHaveLength(1);
    },
  );

  it('what they change in their copy is not what is shown, compared or executed', async () => {
    const spoil = (args: { to: string; amount: number }) => {
      args.to = 'evil';
      args.amount = 999_999;
    };
    const made = once({
      target: (args) => {
        spoil(args);
        return 'x';
      },
      approval: (args) => {
        spoil(args);
        return { policy: 'payments' };
      },
      review: (args) => {
        spoil(args);
        return { summary: 'Pay' };
      },
    });
    const { start, until, decideAll } = await launch(made);
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    expect((await cardsOf(fleet as Fleet, run)).map(argumentsOf)).toEqual([GOOD]);
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
  });

  it('a review may leave its optional fields undefined', async () => {
    const { start, until } = await launch(
      once({ review: () => ({ summary: 'Pay', undo: undefined, note: undefined }) as never }),
    );
    await until(await start({ workflow: 'agents' }), 'awaiting_approval', 5_000);
    const [card] = await cardsOf(fleet as Fleet, await latest());
    expect(card?.review.review).toEqual({ summary: 'Pay' });
  });

  async function latest(): Promise<string> {
    const [row] = await (fleet as Fleet).rows<{ id: string }>('select id from countersign.runs');
    return row?.id ?? '';
  }
});

describe('arguments at rest', () => {
  it('a record of arguments that does not open is noticed before the ledger believes in an attempt', async () => {
    const made = crew(
      () =>
        named('payer', {
          tools: [
            action({
              name: 'pay',
              description: 'Pay',
              parameters: payment,
              execute: (args, { operationKey, signal }) =>
                provider.client.create(`pay-${args.to}`, args, { idempotencyKey: operationKey, signal }),
              recovery: manual(),
              approval: { policy: 'payments' },
            }),
          ],
        }),
      (_agent, turn) =>
        turn === 0 ? ['a', 'b'].map((to) => ({ name: 'pay', arguments: { to, amount: 1 } })) : 'done',
    );
    const { start, until, decideAll, rows } = await launch(made);
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    // Each row gets the other one's sealed arguments.
    await rows(`update countersign.actions a set sealed_arguments = b.sealed_arguments
      from countersign.actions b where a.run_id = b.run_id and a.id <> b.id`);
    await decideAll(run, 'approve');
    await until(run, 'quarantined');
    expect(await dispatches(provider)).toBe(0);
    expect(await rows('select distinct state, attempt from countersign.actions')).toEqual([
      { state: 'prepared', attempt: 0 },
    ]);
  });
});

function raise(): never {
  throw new TypeError('a bug of the author');
}
