/** Asking a provider ends: with proof, or with a named person who knows that it is their turn. */
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { askAction, listOpenActions, resolveAction } from '../../src/actions/index.ts';
import { lookup, manual } from '../../src/index.ts';
import { createLog, describeError, type Log } from '../../src/log.ts';
import { callFunction } from '../../src/postgres/index.ts';
import { type ReconcileCounts, reconcileOnce } from '../../src/reconcile/index.ts';
import { explain } from '../../src/runs/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { buildRegistry, type Registry } from '../../src/workflows/index.ts';
import { cli } from '../cli/run-cli.ts';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

const tenant = 'acme';
const BUDGET = 3;
let provider: Provider;
let fleet: Fleet;
let registry: Registry;
let amount = 0;
/** What the provider's look-up does next; the last one goes on for ever. */
let answers: (() => unknown)[] = [];

const settings = { sendWithin: '200ms', callTimeout: '300ms' } as const;
const workflowWith = (recovery: unknown) =>
  crew(
    () => named('payer', { tools: [payAction(provider, { ...settings, recovery: recovery as never })] }),
    (_agent, turn) => {
      if (turn > 0) return 'over';
      amount += 1;
      return [{ name: 'pay', arguments: { to: 'acme', amount } }];
    },
  );
const ask = async () => {
  const [next] = answers.length > 1 ? answers.splice(0, 1) : answers;
  return next?.();
};
const cannotSay = () => ({ found: 'cannot_say' });

beforeAll(async () => {
  provider = await startProvider();
  const workflows = [workflowWith(lookup(ask, { settlesWithin: '1ms', lookups: BUDGET }))];
  registry = await buildRegistry(workflows);
  fleet = await createFleet(workflows, { name: 'look-up budget', backend: 'embedded' });
  await fleet.relay();
  await fleet.worker();
});
beforeEach(async () => {
  await provider.client.reset();
  answers = [cannotSay];
});
afterAll(async () => {
  await fleet?.close();
  await provider?.stop();
});

async function unknownRun(): Promise<{ runId: string; actionId: string }> {
  const runId = await fleet.start({ workflow: 'agents' });
  await fleet.until(runId, 'awaiting_approval');
  await provider.client.fault({ fault: { type: 'commit_then_drop' }, next: 1 });
  await fleet.decideAll(runId, 'approve');
  await fleet.until(runId, 'awaiting_reconciliation');
  const [action] = await fleet.rows<{ id: string }>('select id from countersign.actions where run_id = $1', [
    runId,
  ]);
  return { runId, actionId: action?.id ?? '' };
}

/** One pass over this action, with its back-off taken away. Others wait; what waits for a person stays where it is. */
async function pass(
  actionId: string,
  more: { keys?: KeyRing; registry?: Registry; log?: Log } = {},
): Promise<ReconcileCounts> {
  await fleet.rows(
    `update countersign.actions set reconcile_after = clock_timestamp() + case when id = $1 then '0' else '1 h'::interval end
     where reconcile_after is not null`,
    [actionId],
  );
  const log = createLog('reconciler', 'silent');
  return reconcileOnce({ db: fleet.admin, keys: fleet.keys, registry, log, ...more }, { limit: 10 });
}

async function events(runId: string, kind: string): Promise<Record<string, unknown>[]> {
  const found = await fleet.rows<{ data: Record<string, unknown> }>(
    'select data from countersign.events where run_id = $1 and kind = $2 order by n',
    [runId, kind],
  );
  return found.map(({ data }) => data);
}

const env = () => ({
  DATABASE_URL: fleet.url,
  COUNTERSIGN_TENANT: tenant,
  COUNTERSIGN_REVIEW_KEYS: fleet.keySpec.review,
});

describe('an attempt’s look-ups', () => {
  it('end with a named person, whatever they answered: nothing, something else, or an error', async () => {
    const { runId, actionId } = await unknownRun();
    answers = [
      cannotSay,
      () => ({ found: 'different', evidence: 'another amount' }),
      () => {
        throw new Error('down');
      },
    ];
    expect(await pass(actionId)).toMatchObject({ cannot_say: 1, gave_up: 0 });
    expect(await pass(actionId)).toMatchObject({ different: 1, gave_up: 0 });
    expect(await pass(actionId)).toMatchObject({ cannot_say: 1, gave_up: 1 });
    expect(await pass(actionId)).toMatchObject({ asked: 0 });

    expect(await events(runId, 'action_waits_for_person')).toEqual([
      {
        action: actionId,
        attempt: 1,
        reason: 'LOOKUPS_SPENT',
        lookups: BUDGET,
        answer: 'cannot_say',
        why: 'LOOKUP_FAILED',
      },
    ]);
    expect(await fleet.until(runId, 'awaiting_reconciliation')).toBe('awaiting_reconciliation');
    const [open] = await listOpenActions(fleet.api, { tenant, onlyUnknown: true });
    expect(open).toMatchObject({ id: actionId, reason: 'LOOKUPS_SPENT', dueAt: null });
    const { text, next } = await explain(fleet.api, { tenant, runId });
    expect(text).toMatch(/asked about 3 times without proof \(last answer cannot_say, LOOKUP_FAILED\)/);
    expect(next.join('\n')).toMatch(/a named person must look.*actions resolve.*actions ask/s);
    const listed = await cli(['actions', 'list'], env());
    expect(listed.stdout).toMatch(/a named person \(LOOKUPS_SPENT\)/);

    await resolveAction(fleet.api, fleet.keys, {
      tenant,
      actionId,
      verdict: 'succeeded',
      subject: 'olga',
      evidence: 'receipt 1',
    });
    await fleet.until(runId, 'completed');
    expect(await effects(provider)).toEqual({ acme: 1 });
  });

  it('begin again by a named person’s word, which is recorded, and may then find the proof', async () => {
    const { runId, actionId } = await unknownRun();
    for (let n = 0; n < BUDGET; n += 1) await pass(actionId);
    answers = [cannotSay, () => ({ found: true, receipt: 'there it is' })];
    const asked = await cli(['actions', 'ask', actionId, '--as', 'olga'], env());
    expect(asked).toMatchObject({ code: 0 });
    expect(asked.stdout).toMatch(/asks the provider now/);
    await askAction(fleet.api, { tenant, actionId, subject: 'otto' });
    expect((await events(runId, 'action_ask_requested')).map(({ by }) => by)).toEqual(['olga', 'otto']);
    expect(await pass(actionId)).toMatchObject({ asked: 1, gave_up: 0 });
    expect(await pass(actionId)).toMatchObject({ found: 1 });
    await fleet.until(runId, 'completed');
    await expect(askAction(fleet.api, { tenant, actionId, subject: 'olga' })).rejects.toMatchObject({
      code: 'ACTION_NOT_OPEN',
      details: { state: 'succeeded' },
    });
    expect((await explain(fleet.api, { tenant, runId })).text).toMatch(/olga asked to have the provider/);
    expect(await effects(provider)).toEqual({ acme: 1 });
  });

  it('are asked for again by nobody of another tenant, and by nobody without a name', async () => {
    const { actionId } = await unknownRun();
    await expect(askAction(fleet.api, { tenant: 'other', actionId, subject: 'eve' })).rejects.toMatchObject({
      code: 'ACTION_NOT_FOUND',
    });
    await expect(askAction(fleet.api, { tenant, actionId, subject: '' })).rejects.toMatchObject({
      code: 'SUBJECT_MISSING',
    });
    await expect(askAction(fleet.api, { tenant, actionId: 'no id', subject: 'olga' })).rejects.toMatchObject({
      code: 'ACTION_NOT_FOUND',
    });
  });

  it('are spent once by reconcilers that ask at the same time', async () => {
    const { runId, actionId } = await unknownRun();
    for (let n = 1; n < BUDGET; n += 1) await pass(actionId);
    await fleet.rows('update countersign.actions set reconcile_after = clock_timestamp() where id = $1', [
      actionId,
    ]);
    const log = createLog('reconciler', 'silent');
    const another = { db: fleet.admin, keys: fleet.keys, registry, log };
    await Promise.all([1, 2, 3].map(() => reconcileOnce(another, { limit: 10, leaseMs: 0 })));
    expect(await events(runId, 'action_waits_for_person')).toHaveLength(1);
  });

  it('are counted anew for each attempt', async () => {
    const { actionId } = await unknownRun();
    await pass(actionId);
    await pass(actionId);
    await provider.client.fault({ fault: { type: 'commit_then_drop' }, next: 1 });
    answers = [() => ({ found: false })];
    await expect
      .poll(
        () =>
          fleet.rows('select 1 from countersign.actions where id = $1 and absent_after < clock_timestamp()', [
            actionId,
          ]),
        { timeout: 5_000 },
      )
      .toHaveLength(1);
    expect(await pass(actionId)).toMatchObject({ absent: 1, gave_up: 0 });
    await expect
      .poll(
        () =>
          fleet.rows(
            "select 1 from countersign.actions where id = $1 and attempt = 2 and state = 'outcome_unknown'",
            [actionId],
          ),
        { timeout: 10_000 },
      )
      .toHaveLength(1);
    answers = [cannotSay];
    expect(await pass(actionId)).toMatchObject({ cannot_say: 1, gave_up: 0 });
    const [action] = await fleet.rows('select reconcile_tries from countersign.actions where id = $1', [
      actionId,
    ]);
    expect(action).toEqual({ reconcile_tries: 1 });
  });
});

describe('a look-up that ends its process each time', () => {
  it('is begun as often as the budget says, and then a person is called without another', async () => {
    const { runId, actionId } = await unknownRun();
    let asked = 0;
    answers = [
      () => {
        asked += 1;
        return cannotSay();
      },
    ];
    for (let n = 0; n < BUDGET; n += 1) {
      // As far as a reconciler comes that dies in the look-up.
      await callFunction(fleet.admin, 'load_action_to_reconcile', [tenant, runId, actionId]);
    }
    expect(await pass(actionId)).toMatchObject({ cannot_say: 1, gave_up: 1 });
    expect(asked).toBe(0);
    expect(await events(runId, 'action_waits_for_person')).toMatchObject([
      { reason: 'LOOKUPS_SPENT', why: 'LOOKUPS_UNANSWERED' },
    ]);
    await askAction(fleet.api, { tenant, actionId, subject: 'olga' });
    expect(await pass(actionId)).toMatchObject({ cannot_say: 1, gave_up: 0 });
    expect(asked).toBe(1);
  });
});

describe('a provider that cannot be asked at all', () => {
  let logged = '';
  const log = pino(
    { level: 'error', serializers: { err: describeError } },
    new Writable({
      write(chunk, _encoding, done) {
        logged += String(chunk);
        done();
      },
    }),
  );
  beforeEach(() => {
    logged = '';
  });

  it.each([
    ['KEY_MISSING', async () => ({ keys: KeyRing.parse(KeyRing.generate()) })],
    ['LOOKUP_MISSING', async () => ({ registry: await buildRegistry([workflowWith(manual())]) })],
  ])('for %s says so in the log and in the events before a person is called', async (reason, broken) => {
    const { runId, actionId } = await unknownRun();
    const more = { ...(await broken()), log };
    for (let n = 0; n < BUDGET; n += 1) await pass(actionId, more);
    const asked = await events(runId, 'action_asked');
    expect(asked).toEqual(
      Array.from({ length: BUDGET }, () => ({
        action: actionId,
        attempt: 1,
        answer: 'cannot_say',
        reason,
      })),
    );
    expect(logged).toContain(`"code":"${reason}"`);
    // Today's code of the second case has no budget of its own: the default goes on for longer.
    if (reason === 'KEY_MISSING') {
      expect(await events(runId, 'action_waits_for_person')).toMatchObject([{ why: reason }]);
      expect(logged).toContain('LOOKUPS_SPENT');
    }
    expect((await explain(fleet.api, { tenant, runId })).text).toContain(`cannot_say (${reason})`);
  });
});

describe('a tool that is never asked about', () => {
  it('waits for a person from the start, with an event, and asking is refused', async () => {
    const workflows = [workflowWith(manual())];
    const other = await createFleet(workflows, { name: 'never asked', backend: 'embedded' });
    try {
      await other.relay();
      await other.worker();
      await other.reconciler();
      const runId = await other.start({ workflow: 'agents' });
      await other.until(runId, 'awaiting_approval');
      await provider.client.fault({ fault: { type: 'commit_then_drop' }, next: 1 });
      await other.decideAll(runId, 'approve');
      const waiting = () =>
        other.rows<{ id: string }>(
          `select data ->> 'action' as id from countersign.events
           where run_id = $1 and kind = 'action_waits_for_person' and data ->> 'reason' = 'NOBODY_TO_ASK'`,
          [runId],
        );
      await expect.poll(waiting, { timeout: 15_000 }).toHaveLength(1);
      const [{ id: actionId } = { id: '' }] = await waiting();
      await expect(askAction(other.api, { tenant, actionId, subject: 'olga' })).rejects.toMatchObject({
        code: 'ACTION_HAS_NO_LOOKUP',
        details: { recovery: 'manual' },
      });
    } finally {
      await other.close();
    }
  });
});
