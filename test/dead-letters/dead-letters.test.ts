import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { listDeadLetters, planReplay, replay, showDeadLetter } from '../../src/dead-letters/index.ts';
import { explain } from '../../src/runs/index.ts';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { dispatches, effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

const tenant = 'acme';
let provider: Provider;
let fleet: Fleet;
let failures = 0;
let amount = 0;

beforeAll(async () => {
  provider = await startProvider();
  const pay = payAction(provider);
  const agents = crew(
    () => named('payer', { tools: [pay] }),
    (_agent, turn) => {
      if (turn === 0) {
        amount += 1;
        return [{ name: 'pay', arguments: { to: 'acme', amount } }];
      }
      if (failures > 0) {
        failures -= 1;
        throw new Error('429 too many requests');
      }
      return 'paid';
    },
  );
  fleet = await createFleet([agents], { name: 'dead letters', backend: 'redis' });
  await fleet.relay();
  await fleet.worker({ maxAttempts: 2, retryDelayMs: 20 });
});

beforeEach(async () => {
  failures = 0;
  await provider.client.reset();
});

afterAll(async () => {
  await fleet?.close();
  await provider?.stop();
});

/** A run whose payment is made and whose model then fails until the budget is spent. */
async function deadRun(extraFailures = 0): Promise<{ runId: string; letterId: string }> {
  const runId = await fleet.start({ workflow: 'agents' });
  await fleet.until(runId, 'awaiting_approval');
  failures = 2 + extraFailures;
  await fleet.decideAll(runId, 'approve');
  await fleet.until(runId, 'dead_lettered');
  const letters = await listDeadLetters(fleet.api, tenant);
  const letter = letters.find((one) => one.runId === runId);
  return { runId, letterId: letter?.id ?? '' };
}

describe('a dead letter', () => {
  it('keeps why and which round, and a dry run says that the receipt would be reused', async () => {
    const { runId, letterId } = await deadRun();
    const letter = await showDeadLetter(fleet.api, tenant, letterId);
    expect(letter).toMatchObject({
      kind: 'run',
      runId,
      class: 'transient_exhausted',
      code: 'MODEL_FAILED',
      round: 1,
      closedAs: null,
    });
    expect(await planReplay(fleet.api, tenant, letter)).toMatchObject([
      { tool: 'pay', plan: 'reuse_receipt' },
    ]);
    expect(await fleet.until(runId, 'dead_lettered')).toBe('dead_lettered');
  });

  it('is replayed with a fresh budget, recorded with who and why, and repeats no effect', async () => {
    const { runId, letterId } = await deadRun(1);
    expect(await dispatches(provider)).toBe(1);
    const replayed = await replay(fleet.api, {
      tenant,
      id: letterId,
      subject: 'olga',
      reason: 'provider is back',
    });
    expect(replayed).toMatchObject({ outcome: 'replayed', runId });
    await fleet.until(runId, 'completed');
    expect(await effects(provider)).toEqual({ acme: 1 });
    expect(await dispatches(provider)).toBe(1);
    expect(await showDeadLetter(fleet.api, tenant, letterId)).toMatchObject({
      closedAs: 'replayed',
      replayedBy: 'olga',
      replayReason: 'provider is back',
    });
    const { text } = await explain(fleet.api, { tenant, runId });
    expect(text).toContain('olga replayed it');
  });

  it('replayed by many operators at once makes one round', async () => {
    const { runId, letterId } = await deadRun();
    const outcomes = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        replay(fleet.api, { tenant, id: letterId, subject: `operator-${n}`, reason: '' }),
      ),
    );
    expect(outcomes.filter(({ outcome }) => outcome === 'replayed')).toHaveLength(1);
    await fleet.until(runId, 'completed');
    expect(await effects(provider)).toEqual({ acme: 1 });
    expect((await replay(fleet.api, { tenant, id: letterId, subject: 'late', reason: '' })).outcome).toBe(
      'already_done',
    );
  });

  it('of a second round names that round, and both are kept', async () => {
    const { runId, letterId } = await deadRun();
    failures = 2;
    await replay(fleet.api, { tenant, id: letterId, subject: 'olga', reason: '' });
    const end = Date.now() + 10_000;
    let letters = await listDeadLetters(fleet.api, tenant, { closed: true });
    while (letters.filter((one) => one.runId === runId).length < 2 && Date.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 30));
      letters = await listDeadLetters(fleet.api, tenant, { closed: true });
    }
    expect(
      letters.filter((one) => one.runId === runId).map(({ round, closedAs }) => [round, closedAs]),
    ).toEqual([
      [1, 'replayed'],
      [2, null],
    ]);
  });

  it('of another tenant, of nobody, or with a malformed id is not found, and nobody may replay without a name', async () => {
    const { letterId } = await deadRun();
    const unknown = { code: 'DEAD_LETTER_NOT_FOUND' };
    await expect(
      replay(fleet.api, { tenant: 'other', id: letterId, subject: 'eve', reason: '' }),
    ).rejects.toMatchObject(unknown);
    await expect(
      replay(fleet.api, { tenant, id: '00000000-0000-4000-8000-000000000000', subject: 'eve', reason: '' }),
    ).rejects.toMatchObject(unknown);
    await expect(
      replay(fleet.api, { tenant, id: "1'; drop table", subject: 'eve', reason: '' }),
    ).rejects.toMatchObject(unknown);
    await expect(replay(fleet.api, { tenant, id: letterId, subject: '', reason: '' })).rejects.toMatchObject({
      code: 'SUBJECT_MISSING',
    });
  });

  it('can be a poison announcement too: it is listed, put back by a named person and then sent', async () => {
    const runId = await fleet.start({ workflow: 'agents' });
    await fleet.until(runId, 'awaiting_approval');
    const [row] = await fleet.rows<{ id: string }>(
      `insert into countersign.outbox (tenant, run_id, wake, dead_at, dead_reason, failures)
       select tenant, id, wake, clock_timestamp(), 'PUBLISH_REFUSED', 5 from countersign.runs where id = $1 returning id`,
      [runId],
    );
    const letters = await listDeadLetters(fleet.api, tenant, { class: 'poison' });
    expect(letters).toMatchObject([{ id: row?.id, kind: 'outbox', runId, code: 'PUBLISH_REFUSED' }]);
    expect(await replay(fleet.api, { tenant, id: row?.id ?? '', subject: 'olga', reason: '' })).toMatchObject(
      { outcome: 'replayed' },
    );
    const end = Date.now() + 5_000;
    const sent = async () =>
      (
        await fleet.rows<{ sent: boolean }>(
          'select sent_at is not null as sent from countersign.outbox where id = $1',
          [row?.id],
        )
      )[0]?.sent;
    while (!(await sent()) && Date.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(await sent()).toBe(true);
  });
});
