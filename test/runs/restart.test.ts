import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { judgeRuns } from '../../src/chaos/index.ts';
import { openDatabase } from '../../src/postgres/index.ts';
import { checkVersions, listVersions, restartRun } from '../../src/runs/index.ts';
import { buildRegistry, workflow } from '../../src/workflows/index.ts';
import { scriptedProvider, type Turn } from '../fixtures/scripted.ts';
import { modelOf, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

const tenant = 'acme';
let provider: Provider;
let fleet: Fleet;
let amount = 0;

/** Two payments, one after the other, each with its own decision. */
function twoPayments(_agent: string, turn: number): Turn {
  amount += 1;
  return turn < 2
    ? [{ name: 'pay', arguments: { to: turn === 0 ? 'first' : 'second', amount } }]
    : 'both paid';
}

const version = (name: string, settings: Parameters<typeof payAction>[1] = {}, more: object = {}) =>
  workflow({
    name: 'pays',
    version: name,
    agent: () => named('payer', { tools: [payAction(provider, settings)] }),
    modelProvider: scriptedProvider(modelOf(twoPayments)),
    ...more,
  });

beforeAll(async () => {
  provider = await startProvider();
  fleet = await createFleet([version('1')], { name: 'restart', backend: 'redis' });
  await fleet.relay();
});

afterAll(async () => {
  await fleet?.close();
  await provider?.stop();
});

describe('a restart from a checkpoint', () => {
  it('inherits keys and receipts, asks anew for what is undecided, and repeats no effect', async () => {
    const worker = await fleet.worker();
    const db = openDatabase({ url: fleet.url, role: 'countersign_worker', max: 2 });
    const registry = await buildRegistry([version('1')]);
    const ask = (runId: string, checkpoint: number) =>
      restartRun(db, fleet.keys, registry, { tenant, runId, checkpoint, subject: 'olga', reason: 'stuck' });

    const old = await fleet.start({ workflow: 'pays' });
    await fleet.until(old, 'awaiting_approval');
    await fleet.decideAll(old, 'approve');
    await fleet.until(old, 'awaiting_approval');
    expect(await effects(provider)).toEqual({ first: 1 });

    await expect(ask(old, 0)).rejects.toMatchObject({ code: 'EFFECTS_AFTER_CHECKPOINT' });
    await expect(ask(old, 7)).rejects.toMatchObject({ code: 'CHECKPOINT_NOT_FOUND' });

    const [before] = await fleet.rows<{ id: string }>(
      "select id from countersign.actions where run_id = $1 and state = 'prepared'",
      [old],
    );
    const restarted = await ask(old, 2);
    expect(restarted).toMatchObject({ from: old, checkpoint: 2, status: 'awaiting_approval' });
    await fleet.until(old, 'superseded');
    const [after] = await fleet.rows<{ id: string }>(
      "select id from countersign.actions where run_id = $1 and state = 'prepared'",
      [restarted.runId],
    );
    expect(after?.id).toBe(before?.id);

    await fleet.decideAll(restarted.runId, 'approve');
    await fleet.until(restarted.runId, 'completed');
    expect(await effects(provider)).toEqual({ first: 1, second: 1 });
    await expect(ask(restarted.runId, 2)).rejects.toMatchObject({ code: 'RUN_ENDED' });

    const first = await fleet.start({ workflow: 'pays' });
    await fleet.until(first, 'awaiting_approval');
    const again = await ask(first, 1);
    await fleet.decideAll(again.runId, 'approve');
    await fleet.until(again.runId, 'awaiting_approval');
    expect((await effects(provider)).first).toBe(2);

    // An auditor finds nothing amiss, although actions of one run were asked for in another.
    const runs = [old, restarted.runId, first, again.runId].map((id) => ({ tenant, id }));
    const asked = { runs, restless: [], settleMs: 0, since: 0, effectsOf: async () => [], keys: fleet.keys };
    expect(await judgeRuns(fleet.admin, asked)).toEqual([]);
    await db.close();
    await worker.stop();
  });
});

describe('a deploy', () => {
  it('parks the runs of a version nobody carries, counts them, and an adapter carries them on with their approvals', async () => {
    await provider.client.reset();
    const old = await fleet.worker();
    const run = await fleet.start({ workflow: 'pays', version: '1' });
    await fleet.until(run, 'awaiting_approval');
    await old.stop();
    await fleet.decideAll(run, 'approve');
    await fleet.until(run, 'parked');
    const [row] = await fleet.rows<{ attempts_in_round: number }>(
      'select attempts_in_round from countersign.runs where id = $1',
      [run],
    );
    expect(row?.attempts_in_round).toBe(0);
    const counted = (await listVersions(fleet.api, tenant)).find((one) => one.version === '1');
    expect(counted).toMatchObject({ workflow: 'pays', liveWorkers: 0, retirable: false });
    expect(counted?.waiting.parked).toBeGreaterThanOrEqual(1);

    const stranger = await fleet.worker({ workflows: [version('2')] });
    expect(await fleet.until(run, 'parked')).toBe('parked');
    await stranger.stop();

    const adapted = version(
      '2',
      { version: '2' },
      { adapters: [{ from: '1', tools: [payAction(provider)] }] },
    );
    const db = openDatabase({ url: fleet.url, role: 'countersign_worker', max: 2 });
    const unadapted = await checkVersions(db, fleet.keys, await buildRegistry([version('2')]));
    expect(unadapted.wouldNot.find(({ runId }) => runId === run)).toMatchObject({
      resumes: false,
      code: 'WORKFLOW_UNKNOWN',
    });
    const loose = version('2', { version: '2' }, { adapters: [{ from: '1' }] });
    const unguarded = await checkVersions(db, fleet.keys, await buildRegistry([loose]));
    expect(unguarded.wouldNot.find(({ runId }) => runId === run)).toMatchObject({ code: 'TOOL_NOT_GUARDED' });
    const checked = await checkVersions(db, fleet.keys, await buildRegistry([adapted]));
    expect(checked.wouldNot.find(({ runId }) => runId === run)).toBeUndefined();
    await db.close();
    expect(await effects(provider)).toEqual({});

    const capable = await fleet.worker({ workflows: [adapted] });
    await fleet.until(run, 'awaiting_approval');
    expect(await effects(provider)).toEqual({ first: 1 });
    await capable.stop();
  });
});
