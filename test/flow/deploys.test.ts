/** A new deployment of the same workflow version meets runs that were paused under the old one (S05, S06). */
import { setTimeout as sleep } from 'node:timers/promises';
import { tool } from '@openai/agents';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Workflow } from '../../src/workflows/index.ts';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { dispatches, effects, type Payment, payAction, payment } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { cardFor, cardsOf, decideCard } from '../support/reviewer.ts';

let provider: Provider;
let fleet: Fleet;

beforeAll(async () => {
  provider = await startProvider();
});
beforeEach(async () => {
  await provider.client.reset();
  fleet = await createFleet([before], { name: 'deploys', backend: 'redis' });
  await fleet.relay();
});
afterEach(() => fleet?.close());
afterAll(() => provider?.stop());

const above = (limit: number) => (args: Payment) =>
  args.amount > limit ? { policy: `above ${limit}` } : null;

/** No two runs ask for the same payment. */
let amount = 500;

/** Asks for payments of 500 and more, which the first rule gates. */
const version = (tools: () => unknown[]): Workflow =>
  crew(
    () => named('payer', { tools: tools() as never }),
    (_agent, turn) =>
      turn === 0 ? ['a', 'b'].map((to) => ({ name: 'pay', arguments: { to, amount: amount++ } })) : 'done',
  );

const before = version(() => [lazily({ approval: above(100) })]);

/** The provider is there only once the tests run. */
function lazily(settings: Parameters<typeof payAction>[1]) {
  const late = {
    get client() {
      return provider.client;
    },
  };
  return payAction(late as Provider, settings);
}

async function pausedUnderTheOldCode(): Promise<string> {
  const old = await fleet.worker();
  const run = await fleet.start({ workflow: 'agents' });
  await fleet.until(run, 'awaiting_approval');
  await old.stop();
  return run;
}

/** What a sweep, a duplicate or an operator's replay would do: announce the run once more. */
const stray = (run: string) =>
  fleet.rows(
    'insert into countersign.outbox (tenant, run_id, wake) select tenant, id, wake from countersign.runs where id = $1',
    [run],
  );

describe('a deploy that changes the approval rule (S05)', () => {
  it.each([
    ['raises the limit', { approval: above(1_000) }],
    ['removes the gate', { approval: null }],
  ])(
    '%s: the undecided call stays undecided, however often its run is announced; decided, it runs once',
    async (_how, settings) => {
      const run = await pausedUnderTheOldCode();
      await fleet.worker({ workflows: [version(() => [lazily(settings)])] });
      await fleet.reconciler({ workflows: [version(() => [lazily(settings)])] });
      const cards = await cardsOf(fleet, run);
      await stray(run);
      await decideCard(fleet, cardFor(cards, 'a'), { verdict: 'approve' });
      await stray(run);
      await sleep(600);
      expect(await fleet.until(run, 'awaiting_approval')).toBe('awaiting_approval');
      expect(await dispatches(provider)).toBe(0);
      await decideCard(fleet, cardFor(cards, 'b'), { verdict: 'reject' });
      await fleet.until(run, 'completed');
      expect(await effects(provider)).toEqual({ a: 1 });
    },
  );

  it('tightens it: what a person approved under the old rule runs once', async () => {
    const run = await pausedUnderTheOldCode();
    await fleet.decideAll(run, 'approve');
    await fleet.worker({
      workflows: [version(() => [lazily({ approval: { policy: 'always', quorum: 2 } })])],
    });
    await fleet.until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1, b: 1 });
  });
});

describe('a deploy that changes the tool', () => {
  it.each([
    [
      'to a plain tool',
      () =>
        tool({
          name: 'pay',
          description: 'Pay somebody',
          parameters: payment,
          execute: (args) => provider.client.create(`pay-${args.to}`, args, { idempotencyKey: 'plain' }),
        }),
    ],
    ['to another version of itself', () => lazily({ version: '2' })],
    [
      'to another schema',
      () => lazily({ parameters: payment.extend({ memo: z.string().default('') }) as never }),
    ],
    ['away', () => lazily({ name: 'refund' })],
  ])(
    '%s leaves approved runs alone, with no attempt spent; the old code, back again, finishes them',
    async (_how, make) => {
      const run = await pausedUnderTheOldCode();
      const changed = version(() => [make()]);
      const wrong = await fleet.worker({ workflows: [changed] });
      await fleet.reconciler({ workflows: [changed] });
      await fleet.decideAll(run, 'approve');
      await fleet.until(run, 'parked');
      await stray(run);
      await sleep(500);
      expect(await fleet.rows('select status, reason, attempts_in_round from countersign.runs')).toEqual([
        { status: 'parked', reason: 'NO_CAPABLE_WORKER', attempts_in_round: 0 },
      ]);
      expect(await dispatches(provider)).toBe(0);
      expect(await fleet.rows('select distinct state from countersign.approvals')).toEqual([
        { state: 'approved' },
      ]);
      await wrong.stop();
      await fleet.worker();
      await fleet.until(run, 'completed');
      expect(await effects(provider)).toEqual({ a: 1, b: 1 });
    },
  );

  it('in its words, defaults of the rule and code, but not in what its manifest says, carries the runs on', async () => {
    const run = await pausedUnderTheOldCode();
    await fleet.decideAll(run, 'approve');
    await fleet.worker({
      workflows: [version(() => [lazily({ description: 'Transfer money', callTimeout: '10s' })])],
    });
    await fleet.until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1, b: 1 });
  });
});

describe('another version of the workflow only (S06)', () => {
  it('twenty parked runs wait visibly, undecided ones stay pending, and all approved ones finish when their version is back', async () => {
    const old = await fleet.worker();
    const runs = await Promise.all(Array.from({ length: 20 }, () => fleet.start({ workflow: 'agents' })));
    await Promise.all(runs.map((run) => fleet.until(run, 'awaiting_approval')));
    await old.stop();
    const later = { ...before, version: '2' };
    await fleet.worker({ workflows: [later] });
    await fleet.reconciler({ workflows: [later] });
    const approved = runs.slice(0, 10);
    for (const run of approved) await fleet.decideAll(run, 'approve');
    await Promise.all(approved.map((run) => fleet.until(run, 'parked')));
    expect(
      await fleet.rows(
        'select version, status, reason, attempts_in_round as spent, count(*)::integer from countersign.runs group by 1, 2, 3, 4 order by 2',
      ),
    ).toEqual([
      { version: '1', status: 'awaiting_approval', reason: null, spent: 0, count: 10 },
      { version: '1', status: 'parked', reason: 'NO_CAPABLE_WORKER', spent: 0, count: 10 },
    ]);
    await fleet.worker();
    await Promise.all(approved.map((run) => fleet.until(run, 'completed')));
    expect(await effects(provider)).toEqual({ a: 10, b: 10 });
    expect(
      await fleet.rows("select count(*)::integer from countersign.approvals where state = 'pending'"),
    ).toEqual([{ count: 20 }]);
  });
});
