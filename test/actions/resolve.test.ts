import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { listOpenActions, manual, resolveAction } from '../../src/actions/index.ts';
import { explain } from '../../src/runs/index.ts';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

const tenant = 'acme';
let provider: Provider;
let fleet: Fleet;
let amount = 0;
let told: string[] = [];

beforeAll(async () => {
  provider = await startProvider();
  const pay = payAction(provider, { recovery: manual() as never, sendWithin: '300ms', callTimeout: '700ms' });
  fleet = await createFleet(
    [
      crew(
        () => named('payer', { tools: [pay] }),
        (_agent, turn, results) => {
          if (turn === 0) {
            amount += 1;
            return [{ name: 'pay', arguments: { to: 'acme', amount } }];
          }
          told = results;
          return 'over';
        },
      ),
    ],
    { name: 'resolve', backend: 'redis' },
  );
  await fleet.relay();
  await fleet.worker();
  await fleet.reconciler();
});

beforeEach(() => provider.client.reset());

afterAll(async () => {
  await fleet?.close();
  await provider?.stop();
});

/** A run whose payment was committed, or not, and whose answer was lost. */
async function unknownRun(fault: 'commit_then_drop' | 'drop'): Promise<{ runId: string; actionId: string }> {
  const runId = await fleet.start({ workflow: 'agents' });
  await fleet.until(runId, 'awaiting_approval');
  await provider.client.fault({ fault: { type: fault }, next: 1 });
  await fleet.decideAll(runId, 'approve');
  await fleet.until(runId, 'awaiting_reconciliation');
  const open = await listOpenActions(fleet.api, { tenant, onlyUnknown: true });
  return { runId, actionId: open.find((action) => action.runId === runId)?.id ?? '' };
}

const say = (
  actionId: string,
  verdict: 'succeeded' | 'not_executed' | 'abandoned',
  evidence = 'receipt 4711',
  attempt = 1,
) => resolveAction(fleet.api, fleet.keys, { tenant, actionId, attempt, verdict, subject: 'olga', evidence });

/** Until the request of the latest attempt cannot arrive any more. */
async function past(actionId: string): Promise<void> {
  await expect
    .poll(
      () =>
        fleet.rows('select 1 from countersign.actions where id = $1 and absent_after < clock_timestamp()', [
          actionId,
        ]),
      { timeout: 10_000 },
    )
    .toHaveLength(1);
}

describe('an action whose outcome only a person can know', () => {
  it('waits for a named person, and says so', async () => {
    const { runId } = await unknownRun('commit_then_drop');
    const explanation = await explain(fleet.api, { tenant, runId });
    expect(explanation.unknown).toHaveLength(1);
    expect(explanation.text).toMatch(/named person/);
    expect(await effects(provider)).toEqual({ acme: 1 });
  });

  it('judged done, answers the model with the evidence and sends nothing again', async () => {
    const { runId, actionId } = await unknownRun('commit_then_drop');
    expect(await say(actionId, 'succeeded')).toMatchObject({ state: 'succeeded' });
    await fleet.until(runId, 'completed');
    expect(told).toEqual(['receipt 4711']);
    expect(await effects(provider)).toEqual({ acme: 1 });
  });

  it('judged not executed, is sent once more under the same key', async () => {
    const { runId, actionId } = await unknownRun('drop');
    await expect(say(actionId, 'not_executed')).rejects.toMatchObject({
      code: 'ACTION_UNDER_WAY',
      retry: true,
      details: { absentAfter: expect.stringMatching(/^20/) },
    });
    await past(actionId);
    expect(await say(actionId, 'not_executed', 'not in the ledger of the bank')).toMatchObject({
      state: 'prepared',
    });
    await fleet.until(runId, 'completed');
    expect(await effects(provider)).toEqual({ acme: 1 });
    expect(Object.keys((await provider.client.counts()).byKey)).toEqual([actionId]);
  });

  it('said of an attempt that is not the latest any more, closes nothing: two persons are not two effects', async () => {
    const { runId, actionId } = await unknownRun('drop');
    await past(actionId);
    // Both have looked for attempt 1. What the first sets off is in the open when the second speaks.
    await provider.client.fault({ fault: { type: 'commit_then_drop' }, next: 1 });
    await say(actionId, 'not_executed');
    await expect
      .poll(
        () =>
          fleet.rows(
            "select 1 from countersign.actions where id = $1 and attempt = 2 and state = 'outcome_unknown' and absent_after < clock_timestamp()",
            [actionId],
          ),
        { timeout: 20_000 },
      )
      .toHaveLength(1);
    await expect(say(actionId, 'not_executed')).rejects.toMatchObject({
      code: 'ACTION_SENT_AGAIN',
      details: { attempt: 2 },
    });
    await say(actionId, 'succeeded', 'receipt 2', 2);
    await fleet.until(runId, 'completed');
    expect(await effects(provider)).toEqual({ acme: 1 });
  });

  it('abandoned, tells the model that nobody knows and not to repeat it', async () => {
    const { runId, actionId } = await unknownRun('commit_then_drop');
    await say(actionId, 'abandoned');
    await fleet.until(runId, 'completed');
    expect(told[0]).toMatch(/unknown.*Do not repeat/s);
    expect((await explain(fleet.api, { tenant, runId })).actions[0]?.happened).toBe('unknown');
  });

  it('is judged once; a second word, a foreign tenant, and a word without a name or evidence change nothing', async () => {
    const { actionId } = await unknownRun('commit_then_drop');
    await expect(say(actionId, 'succeeded', '')).rejects.toMatchObject({
      code: 'INPUT_INVALID',
      details: { field: 'evidence' },
    });
    await expect(
      resolveAction(fleet.api, fleet.keys, {
        tenant,
        actionId,
        verdict: 'succeeded',
        subject: '',
        evidence: 'x',
      }),
    ).rejects.toMatchObject({ code: 'SUBJECT_MISSING' });
    await expect(
      resolveAction(fleet.api, fleet.keys, {
        tenant: 'other',
        actionId,
        verdict: 'succeeded',
        subject: 'eve',
        evidence: 'x',
      }),
    ).rejects.toMatchObject({ code: 'ACTION_NOT_FOUND' });
    await say(actionId, 'succeeded');
    await expect(say(actionId, 'not_executed')).rejects.toMatchObject({
      code: 'ACTION_NOT_OPEN',
      details: { state: 'succeeded' },
    });
  });
});
