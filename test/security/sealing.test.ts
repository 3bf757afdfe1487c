/**
 * Somebody holds the database and the keys, and changes what a person has approved (S26): every change is found before
 * anything runs. The change is made on real rows, between the decision and the worker that resumes.
 */
import { describe, expect, it } from 'vitest';
import { showApproval } from '../../src/approvals/index.ts';
import {
  actionOf,
  approvedRun,
  argumentsOf,
  checkpointAt,
  expectQuarantined,
  fleet,
  type Place,
  pausedAt,
  provider,
  put,
  resume,
  rewrite,
  sealedAt,
  twoRuns,
  useSealedStage,
} from '../support/sealed-stage.ts';

useSealedStage();

describe('S26: with the database and the keys, after the approval', () => {
  it('(a) other arguments everywhere in the state: quarantined, nothing runs', async () => {
    const run = await approvedRun();
    await rewrite(checkpointAt(run, 1), 'state', (text) => text.replaceAll('acme', 'evil'));
    await resume(run.runId, ['quarantined']);
    await expectQuarantined(run.runId, 'DIGEST_MISMATCH');
  });

  it('(b) other arguments in the pending call alone: quarantined, nothing runs', async () => {
    const run = await approvedRun();
    await rewrite(checkpointAt(run, 1), 'state', (text) => {
      const start = text.indexOf('\n') + 1;
      const state = JSON.parse(text.slice(start)) as { currentStep: unknown };
      state.currentStep = JSON.parse(JSON.stringify(state.currentStep).replaceAll('acme', 'evil'));
      return text.slice(0, start) + JSON.stringify(state);
    });
    await resume(run.runId, ['quarantined', 'dead_lettered']);
    await expectQuarantined(run.runId, 'DIGEST_MISMATCH');
  });

  it('(c) another tool of the same shape: quarantined, nothing runs', async () => {
    const run = await approvedRun();
    await rewrite(checkpointAt(run, 1), 'state', (text) =>
      text.replaceAll('"pay"', '"refund"').replaceAll('\\"pay\\"', '\\"refund\\"'),
    );
    await resume(run.runId, ['quarantined']);
    await expectQuarantined(run.runId, 'DIGEST_MISMATCH');
  });

  it('(d) the state of an earlier pause in the place of the last one: quarantined, nothing runs', async () => {
    const run = await approvedRun(2);
    const before = (await provider.client.findBy('pay', 'to', 'acme')).effects.length;
    const earlier = checkpointAt(run, 1);
    const text = fleet.keys.openText('state', await sealedAt(earlier), earlier.binding);
    const place = checkpointAt(run, 2);
    await put(place, fleet.keys.seal('state', text, place.binding));
    await resume(run.runId, ['quarantined']);
    await expectQuarantined(run.runId, 'CALL_NOT_IN_LEDGER', 1);
    expect((await provider.client.findBy('pay', 'to', 'acme')).effects).toHaveLength(before);
    expect((await provider.client.findBy('pay', 'to', 'beta')).effects).toEqual([]);
  });

  it('(e) another call id, everywhere: quarantined, and no second effect under any key', async () => {
    const run = await approvedRun();
    const { call_id } = await actionOf(run.runId);
    await rewrite(checkpointAt(run, 1), 'state', (text) =>
      text.replaceAll(call_id, `call_${crypto.randomUUID()}`),
    );
    await resume(run.runId, ['quarantined']);
    await expectQuarantined(run.runId, 'CALL_NOT_IN_LEDGER');
  });

  it('the call id of another run’s approved action: quarantined, and that action stays its own run’s', async () => {
    const [mine, theirs] = await twoRuns();
    const [from, to] = [await actionOf(mine.runId), await actionOf(theirs.runId)];
    await rewrite(checkpointAt(mine, 1), 'state', (text) => text.replaceAll(from.call_id, to.call_id));
    await resume(mine.runId, ['quarantined']);
    await expectQuarantined(mine.runId, 'CALL_NOT_IN_LEDGER');
  });

  it('other arguments in the ledger row, the state as reviewed: quarantined, nothing runs', async () => {
    const run = await approvedRun();
    const { id } = await actionOf(run.runId);
    await rewrite(argumentsOf(run.tenant, id), 'review', (text) => text.replace('acme', 'evil'));
    await resume(run.runId, ['quarantined']);
    await expectQuarantined(run.runId, 'DIGEST_MISMATCH');
  });

  // Open: the fingerprint covers the digest of what will run, and nothing compares the card's own arguments with it.
  it('other arguments on the card than those that will run: not shown as if they were what a decision is about', async () => {
    const worker = await fleet.worker();
    const runId = await fleet.start({ workflow: 'payments' });
    await pausedAt(runId, 1);
    await worker.stop();
    const [approval] = await fleet.rows<{ id: string }>(
      'select id from countersign.approvals where run_id = $1',
      [runId],
    );
    const approvalId = approval?.id ?? '';
    const place: Place = {
      table: 'approvals',
      column: 'sealed_review',
      binding: { tenant: 'acme', table: 'approvals', column: 'sealed_review', row: approvalId },
      where: `id = '${approvalId}'`,
    };
    await rewrite(place, 'review', (text) => text.replaceAll('acme', 'harmless'));
    await expect(showApproval(fleet.api, fleet.keys, { tenant: 'acme', approvalId })).rejects.toMatchObject({
      code: 'DIGEST_MISMATCH',
    });
  });

  it('the approval of one action moved to another: quarantined, nothing runs', async () => {
    const [approved, undecided] = await twoRuns();
    const { id } = await actionOf(undecided.runId);
    // A decision taken for one fingerprint is put over the other run's action.
    await fleet.rows(
      `update countersign.approvals p set fingerprint = q.fingerprint from countersign.approvals q
       where p.run_id = $1 and q.run_id = $2`,
      [undecided.runId, approved.runId],
    );
    await resume(undecided.runId, ['quarantined', 'completed', 'awaiting_approval']);
    await expectQuarantined(undecided.runId, 'DIGEST_MISMATCH');
    expect((await provider.client.counts()).byKey[id]).toBeUndefined();
  });
});
