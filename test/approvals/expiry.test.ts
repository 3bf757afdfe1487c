import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { listApprovals, revoke } from '../../src/approvals/index.ts';
import { isCountersignError } from '../../src/errors.ts';
import { crew, named } from '../support/crew.ts';
import { ruledWorkflow, startRuled } from '../support/decisions.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { dispatches, effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { cardFor, cardsOf, decideCard } from '../support/reviewer.ts';

const EXPIRED = 'heard: Not executed: the approval expired before the action could run.';
const REVOKED = 'heard: Not executed: the approval was withdrawn.';

let provider: Provider;
let fleet: Fleet;

beforeAll(async () => {
  provider = await startProvider();
});
beforeEach(async () => {
  await provider.client.reset();
  fleet = await createFleet([ruledWorkflow(provider)], { name: 'expiry', backend: 'redis' });
  await fleet.relay();
});
afterEach(() => fleet?.close());
afterAll(() => provider?.stop());

/** A run paused at its payment; the worker that brought it there is given back. */
async function paused(rule: Parameters<typeof startRuled>[1]) {
  const worker = await fleet.worker();
  const run = await startRuled(fleet, rule);
  await fleet.until(run, 'awaiting_approval');
  const [card] = await cardsOf(fleet, run);
  if (card === undefined) throw new Error('the run has no card');
  return { run, card, worker };
}

const remaining = async (approvalId: string, column: 'decide_before' | 'execute_before') => {
  const [row] = await fleet.rows<{ ms: number }>(
    `select (extract(epoch from ${column} - clock_timestamp()) * 1000)::float8 as ms from countersign.approvals where id = $1`,
    [approvalId],
  );
  return row?.ms ?? Number.NaN;
};

describe('the time to decide (S23)', () => {
  it('a decision just in time counts', async () => {
    const { run, card } = await paused({ to: 'a', expiresMs: 1_500 });
    await sleep(Math.max(0, (await remaining(card.id, 'decide_before')) - 300));
    expect(await decideCard(fleet, card, { verdict: 'approve' })).toMatchObject({ outcome: 'approved' });
    await fleet.until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
  });

  it('a lapsed request leaves the list at once, without any sweep, and a late word is refused', async () => {
    const { run, card } = await paused({ to: 'a', expiresMs: 1_000 });
    expect(await listApprovals(fleet.api, { tenant: 'acme' })).toHaveLength(1);
    await sleep((await remaining(card.id, 'decide_before')) + 20);
    expect(await listApprovals(fleet.api, { tenant: 'acme' })).toEqual([]);
    // Whoever asks for all of them is told of this one too.
    const all = await listApprovals(fleet.api, { tenant: 'acme', state: null, limit: 500 });
    expect(all.map(({ id }) => id)).toContain(card.id);
    for (const verdict of ['approve', 'reject', 'approve'] as const) {
      await expect(decideCard(fleet, card, { verdict })).rejects.toMatchObject({ code: 'APPROVAL_EXPIRED' });
    }
    // The late word is what noticed it: the run gets an honest answer at once.
    await fleet.until(run, 'completed');
    expect(await fleet.output(run)).toBe(EXPIRED);
    expect(await dispatches(provider)).toBe(0);
  });

  it('a lapsed request that nobody touches ends with the fixed text, by the sweep', async () => {
    await fleet.reconciler();
    const { run } = await paused({ to: 'a', expiresMs: 500 });
    await fleet.until(run, 'completed');
    expect(await fleet.output(run)).toBe(EXPIRED);
    expect(await dispatches(provider)).toBe(0);
  });

  it('at the very edge, what counts is the database’s clock and nothing in between', async () => {
    const runs = await Promise.all(
      ['a', 'b', 'c', 'd', 'e', 'f'].map((letter) => paused({ to: `edge-${letter}`, expiresMs: 1_500 })),
    );
    const approved = new Set<string>();
    await Promise.all(
      runs.map(async ({ run, card }, index) => {
        await sleep(Math.max(0, (await remaining(card.id, 'decide_before')) - 15 + index * 5));
        const word = decideCard(fleet, card, { verdict: 'approve' });
        await word.then(
          () => approved.add(run),
          (error: unknown) => expect(isCountersignError(error, 'APPROVAL_EXPIRED')).toBe(true),
        );
      }),
    );
    await Promise.all(runs.map(({ run }) => fleet.until(run, 'completed')));
    const late = await fleet.rows('select 1 from countersign.approvals where decided_at >= decide_before');
    expect(late).toEqual([]);
    expect(await dispatches(provider)).toBe(approved.size);
    for (const { run } of runs.filter((each) => !approved.has(each.run))) {
      expect(await fleet.output(run)).toBe(EXPIRED);
    }
  });

  it('two of a quorum, one in time and one late, are not a quorum', async () => {
    const { run, card } = await paused({ to: 'a', quorum: 2, expiresMs: 1_000 });
    expect(await decideCard(fleet, card, { verdict: 'approve' })).toMatchObject({ outcome: 'vote_recorded' });
    await sleep((await remaining(card.id, 'decide_before')) + 20);
    await expect(decideCard(fleet, card, { verdict: 'approve', subject: 'bob' })).rejects.toMatchObject({
      code: 'APPROVAL_EXPIRED',
    });
    await fleet.until(run, 'completed');
    expect(await fleet.output(run)).toBe(EXPIRED);
    expect(await dispatches(provider)).toBe(0);
  });
});

describe('one of two requests that lapses', () => {
  it('does not hold the other up: the sweep answers it, and the approved one is carried out', async () => {
    const pay = payAction(provider, {
      approval: ({ to }) => ({ policy: to, expiresIn: to === 'late' ? '600ms' : '1h' }),
    });
    const heard: string[][] = [];
    const two = crew(
      () => named('payer', { tools: [pay] }),
      (_agent, turn, results) => {
        heard.push(results);
        return turn === 0
          ? ['late', 'soon'].map((to) => ({ name: 'pay', arguments: { to, amount: 1 } }))
          : 'done';
      },
    );
    await fleet.worker({ workflows: [two] });
    const run = await fleet.start({ workflow: 'agents' });
    await fleet.until(run, 'awaiting_approval');
    await decideCard(fleet, cardFor(await cardsOf(fleet, run), 'soon'), { verdict: 'approve' });
    expect(await dispatches(provider)).toBe(0);
    await fleet.reconciler();
    await fleet.until(run, 'completed');
    expect(heard[1]?.[0]).toBe(EXPIRED.replace('heard: ', ''));
    expect(heard[1]?.[1]).toContain('pay-soon');
    expect(await effects(provider)).toEqual({ soon: 1 });
  });
});

describe('the time to execute', () => {
  it.each([
    ['without a sweep', false],
    ['with the sweep first', true],
  ])(
    'approved in time, but no worker started before it ran out: nothing is executed, %s',
    async (_name, swept) => {
      const { run, card, worker } = await paused({ to: 'a', executeMs: 500 });
      await worker.stop();
      await decideCard(fleet, card, { verdict: 'approve' });
      await sleep((await remaining(card.id, 'execute_before')) + 20);
      if (swept) {
        await fleet.reconciler();
        await expect
          .poll(() => fleet.rows('select state from countersign.approvals'))
          .toEqual([{ state: 'expired' }]);
      }
      await fleet.worker();
      await fleet.until(run, 'completed');
      expect(await fleet.output(run)).toBe(EXPIRED);
      expect(await dispatches(provider)).toBe(0);
      await expect(decideCard(fleet, card, { verdict: 'approve', subject: 'bob' })).rejects.toMatchObject({
        code: 'APPROVAL_EXPIRED',
      });
    },
  );

  it('approved in time, and a worker that starts late but inside it executes once', async () => {
    const { run, card, worker } = await paused({ to: 'a', executeMs: 20_000 });
    await worker.stop();
    await decideCard(fleet, card, { verdict: 'approve' });
    await sleep(500);
    await fleet.worker();
    await fleet.until(run, 'completed');
    expect(await effects(provider)).toEqual({ a: 1 });
  });
});

describe('withdrawing an approval', () => {
  it('before any worker has consumed it: no effect, and the model hears that it was withdrawn', async () => {
    const { run, card, worker } = await paused({ to: 'a' });
    await worker.stop();
    await decideCard(fleet, card, { verdict: 'approve' });
    expect(await revoke(fleet.api, { tenant: 'acme', approvalId: card.id, subject: 'bob' })).toMatchObject({
      runId: run,
    });
    await expect(
      revoke(fleet.api, { tenant: 'acme', approvalId: card.id, subject: 'bob' }),
    ).rejects.toMatchObject({
      code: 'APPROVAL_DECIDED',
      details: { state: 'revoked' },
    });
    await fleet.worker();
    await fleet.until(run, 'completed');
    expect(await fleet.output(run)).toBe(REVOKED);
    expect(await dispatches(provider)).toBe(0);
  });

  it('races the worker: either it was withdrawn and nothing happened, or it is too late and it happened once', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `race-${'abcdefghijklmnopqrst'[index]}`);
    const runs = await Promise.all(names.map((to) => paused({ to })));
    const outcomes: Record<string, 'revoked' | 'too late'> = {};
    await Promise.all(
      runs.map(async ({ card }, index) => {
        await decideCard(fleet, card, { verdict: 'approve' });
        await sleep(index * 3);
        const withdrawn = await revoke(fleet.api, {
          tenant: 'acme',
          approvalId: card.id,
          subject: 'bob',
        }).then(
          () => true,
          (error: unknown) => {
            if (!isCountersignError(error, 'APPROVAL_DECIDED')) throw error;
            return false;
          },
        );
        outcomes[names[index] ?? ''] = withdrawn ? 'revoked' : 'too late';
      }),
    );
    await Promise.all(runs.map(({ run }) => fleet.until(run, 'completed')));
    const paid = await effects(provider);
    expect(
      Object.fromEntries(names.map((name) => [name, paid[name] === 1 ? 'too late' : 'revoked'])),
    ).toEqual(outcomes);
    expect(Object.values(paid).every((times) => times === 1)).toBe(true);
  });
});
