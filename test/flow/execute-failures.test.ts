import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { manual, neverSent, refused, type Workflow } from '../../src/index.ts';
import { crew, modelOf, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { dispatches, effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { cardsOf } from '../support/reviewer.ts';

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

async function launch(made: Workflow, worker: Parameters<Fleet['worker']>[0] = {}): Promise<Fleet> {
  fleet = await createFleet([made], { name: 'execute-failures', backend: 'redis' });
  await Promise.all([fleet.relay(), fleet.worker(worker)]);
  return fleet;
}

const pay = (to: string) => ({ name: 'pay', arguments: { to, amount: 1 } });
const actionsOf = (fleet: Fleet) =>
  fleet.rows<{ state: string; attempt: number }>(
    'select state, attempt from countersign.actions order by created_at, id',
  );

describe('an execute that fails', () => {
  it.each([
    ['a plain error', () => new Error('the payment failed, please retry')],
    ['a dropped connection', () => new TypeError('fetch failed')],
    ['nothing at all', () => undefined],
  ])(
    'with %s proves nothing: the run waits, and its model is told neither success nor failure',
    async (_what, reason) => {
      const model = modelOf((_agent, turn) => (turn === 0 ? [pay('a')] : 'done'));
      let calls = 0;
      const silent = payAction(provider, {
        execute: () => {
          calls += 1;
          throw reason();
        },
        recovery: manual() as never,
      });
      const { start, until, decideAll } = await launch(
        crew(() => named('payer', { tools: [silent] }), model),
      );
      await (fleet as Fleet).reconciler();
      const run = await start({ workflow: 'agents' });
      await until(run, 'awaiting_approval');
      await decideAll(run, 'approve');
      await until(run, 'awaiting_reconciliation');
      await sleep(1_000);
      expect(await until(run, 'awaiting_reconciliation')).toBe('awaiting_reconciliation');
      expect(await actionsOf(fleet as Fleet)).toEqual([{ state: 'outcome_unknown', attempt: 1 }]);
      expect({ calls, asked: model.calls }).toEqual({ calls: 1, asked: 1 });
    },
  );

  it('after the provider committed: the look-up finds the effect, the model hears the receipt, one effect', async () => {
    await provider.client.fault({ kind: 'pay-a', fault: { type: 'commit_then_drop' } });
    const heard: string[][] = [];
    const { start, until, decideAll } = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider, { sendWithin: '200ms', callTimeout: '500ms' })] }),
        (_agent, turn, results) => {
          heard.push(results);
          return turn === 0 ? [pay('a')] : 'done';
        },
      ),
    );
    await (fleet as Fleet).reconciler();
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'awaiting_reconciliation');
    await until(run, 'completed');
    expect(heard[1]?.[0]).toContain('"kind":"pay-a"');
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(await dispatches(provider)).toBe(1);
  });

  it('beside a sibling that succeeds: the sibling keeps its receipt, and both are told once', async () => {
    await provider.client.fault({ kind: 'pay-a', fault: { type: 'commit_then_drop' } });
    await provider.client.fault({ kind: 'pay-b', fault: { type: 'delay_answer', ms: 300 } });
    const heard: string[][] = [];
    const { start, until, decideAll } = await launch(
      crew(
        () => named('payer', { tools: [payAction(provider, { sendWithin: '200ms', callTimeout: '1s' })] }),
        (_agent, turn, results) => {
          heard.push(results);
          return turn === 0 ? [pay('a'), pay('b'), pay('c')] : 'done';
        },
      ),
    );
    await (fleet as Fleet).reconciler();
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(heard).toHaveLength(2);
    expect(heard[1]?.map((result) => /pay-[abc]/.exec(result)?.[0])).toEqual(['pay-a', 'pay-b', 'pay-c']);
    expect(await effects(provider)).toEqual({ a: 1, b: 1, c: 1 });
    expect(await dispatches(provider)).toBe(3);
  });

  it.each([
    ['insufficient funds', 'insufficient funds'],
    ['half a surrogate pair', 'no \ud83d'],
    ['two million characters', 'x'.repeat(2_000_000)],
  ])(
    'with a refusal (%s) is final: the model is told, the run completes, nothing is sent again',
    async (_what, message) => {
      let heard = '';
      const refusing = payAction(provider, {
        execute: () => {
          throw refused(message, { code: message.slice(0, 20) });
        },
      });
      const { start, until, decideAll } = await launch(
        crew(
          () => named('payer', { tools: [refusing] }),
          (_agent, turn, results) => {
            heard = results[0] ?? '';
            return turn === 0 ? [pay('a')] : 'done';
          },
        ),
      );
      const run = await start({ workflow: 'agents' });
      await until(run, 'awaiting_approval');
      await decideAll(run, 'approve');
      await until(run, 'completed', 5_000);
      expect(heard.startsWith(`The provider refused: ${message.slice(0, 3)}`)).toBe(true);
      expect(await actionsOf(fleet as Fleet)).toEqual([{ state: 'failed', attempt: 1 }]);
    },
  );

  it('before anything was sent is sent again under the same key and approval: one effect', async () => {
    const keys: string[] = [];
    const shy = payAction(provider, {
      execute: (args, { operationKey, signal, attempt }) => {
        keys.push(operationKey);
        if (attempt < 3) throw neverSent('connection refused');
        return provider.client.create(`pay-${args.to}`, args, { idempotencyKey: operationKey, signal });
      },
    });
    const { start, until, decideAll } = await launch(
      crew(
        () => named('payer', { tools: [shy] }),
        (_agent, turn) => (turn === 0 ? [pay('a')] : 'done'),
      ),
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
    expect(await dispatches(provider)).toBe(1);
    expect(new Set(keys).size).toBe(1);
    expect(await actionsOf(fleet as Fleet)).toEqual([{ state: 'succeeded', attempt: 3 }]);
    expect(await cardsOf(fleet as Fleet, run)).toEqual([]);
  });

  it('never having sent anything, for ever, is given up with nothing done', async () => {
    const { start, until, decideAll } = await launch(
      crew(
        () =>
          named('payer', {
            tools: [
              payAction(provider, {
                execute: () => {
                  throw neverSent('connection refused');
                },
              }),
            ],
          }),
        (_agent, turn) => (turn === 0 ? [pay('a')] : 'done'),
      ),
      { maxAttempts: 2 },
    );
    const run = await start({ workflow: 'agents' });
    await until(run, 'awaiting_approval');
    await decideAll(run, 'approve');
    await until(run, 'dead_lettered');
    expect(await actionsOf(fleet as Fleet)).toEqual([{ state: 'prepared', attempt: 2 }]);
  });
});

describe('an execute that succeeds with a value nobody can store', () => {
  const circular: Record<string, unknown> = {};
  circular.self = circular;

  it.each([
    ['undefined', undefined, 'done'],
    ['half a surrogate pair', 'paid \ud83d', 'paid \ufffd'],
    ['a text cut inside a pair', `${'x'.repeat(999_999)}👍`, 'xxx'],
    ['a BigInt', { amount: 1n }, 'done'],
    ['a circle', circular, 'done'],
    ['a function', () => 1, '() => 1'],
    ['a NUL', 'a\u0000b', 'a\u0000b'],
  ])('%s: the effect is remembered, and the run completes', async (_what, value, told) => {
    let heard = '';
    const odd = payAction(provider, {
      approval: null,
      execute: async (args, { operationKey }) => {
        await provider.client.create(`pay-${args.to}`, args, { idempotencyKey: operationKey });
        return value;
      },
    });
    const { start, until } = await launch(
      crew(
        () => named('payer', { tools: [odd] }),
        (_agent, turn, results) => {
          heard = results[0] ?? '';
          return turn === 0 ? [pay('a')] : 'done';
        },
      ),
    );
    await until(await start({ workflow: 'agents' }), 'completed', 5_000);
    expect(heard.startsWith(told)).toBe(true);
    expect(await effects(provider)).toEqual({ a: 1 });
  });
});
