import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
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
  fleet = await createFleet([made], { name: 'author', backend: 'redis' });
  await Promise.all([fleet.relay(), fleet.worker()]);
  return fleet;
}

const GOOD = { to: 'a', amount: 1 };

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
    ['approval that answers later', { approval: (async () => null) as never }],
    ['approval that fails later', { approval: (async () => raise()) as never }],
    ['review that answers later', { review: (async () => ({ summary: 'x' })) as never }],
    ['review without a summary', { review: () => ({}) as never }],
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
