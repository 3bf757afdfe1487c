import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createStage, type Stage } from './stage.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await createStage('http decisions');
});
afterAll(() => stage?.close());

const decisions = (id: string) => `/v1/approvals/${id}/decisions`;

describe('the main job over HTTP', () => {
  it('start, look, approve, read the output and the explanation', async () => {
    const { runId, approvalId } = await stage.pausedRun();
    const list = await stage.ask('acme/rita', 'GET', '/v1/approvals');
    expect(list.body.approvals).toContainEqual(expect.objectContaining({ id: approvalId, state: 'pending' }));
    const card = await stage.ask('acme/rita', 'GET', `/v1/approvals/${approvalId}`);
    expect(card.body).toMatchObject({
      tool: 'pay',
      policy: 'payments',
      review: { arguments: { to: 'acme', amount: 10 }, review: { summary: 'Pay 10 to acme' } },
      digest: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    const decided = await stage.ask('acme/rita', 'POST', decisions(approvalId), {
      verdict: 'approve',
      fingerprint: card.body.fingerprint,
    });
    expect(decided).toMatchObject({
      status: 200,
      body: { outcome: 'approved', decidedBy: 'rita', runStatus: 'ready' },
    });
    await stage.fleet.until(runId, 'completed');
    const run = await stage.ask('acme/paula', 'GET', `/v1/runs/${runId}`);
    expect(run.body).toMatchObject({ status: 'completed', output: 'done', requestedBy: 'paula' });
    const explained = await stage.ask('acme/olga', 'GET', `/v1/runs/${runId}/explanation`);
    expect(explained.body).toMatchObject({ runId, status: 'completed', unknown: [] });
    expect(stage.paid).toEqual([{ to: 'acme', amount: 10 }]);
    expect(run.headers.get('cache-control')).toBe('no-store');
  });

  it('a repeated start with a key is the same run, and another input under it is a conflict', async () => {
    const body = { workflow: 'pay', input: 'x', context: { order: '1042' }, key: 'once' };
    const first = await stage.ask('acme/paula', 'POST', '/v1/runs', body);
    const again = await stage.ask('acme/paula', 'POST', '/v1/runs', body);
    expect([first.status, again.status]).toEqual([201, 200]);
    expect(again.body).toEqual({ runId: first.body.runId, outcome: 'existing' });
    const other = await stage.ask('acme/paula', 'POST', '/v1/runs', { ...body, input: 'y' });
    expect(other).toMatchObject({ status: 409, body: { code: 'CLIENT_KEY_CONFLICT' } });
  });

  it('an unknown workflow is refused with the known ones', async () => {
    const answer = await stage.ask('acme/paula', 'POST', '/v1/runs', { workflow: 'pai', input: 'x' });
    expect(answer).toMatchObject({ status: 400, body: { code: 'WORKFLOW_UNKNOWN' } });
    expect(answer.body.details).toMatchObject({ known: ['pay@1', 'pay-soon@1'] });
  });
});

describe('a decision', () => {
  it('on what was not shown is a conflict, and changes nothing', async () => {
    const { approvalId } = await stage.pausedRun();
    const answer = await stage.ask('acme/rita', 'POST', decisions(approvalId), {
      verdict: 'approve',
      fingerprint: '0'.repeat(64),
    });
    expect(answer).toMatchObject({ status: 409, body: { code: 'APPROVAL_CHANGED' } });
    const card = await stage.ask('acme/rita', 'GET', `/v1/approvals/${approvalId}`);
    expect(card.body).toMatchObject({ state: 'pending', votes: 0 });
  });

  it('taken once stands: another’s is a conflict that names the first, one’s own repeat the same answer', async () => {
    const { approvalId, fingerprint } = await stage.pausedRun();
    const reject = { verdict: 'reject', fingerprint, words: 'not on a Friday' };
    const first = await stage.ask('acme/rita', 'POST', decisions(approvalId), reject);
    const repeat = await stage.ask('acme/rita', 'POST', decisions(approvalId), reject);
    const other = await stage.ask('acme/rolf', 'POST', decisions(approvalId), {
      verdict: 'approve',
      fingerprint,
    });
    expect(first.body).toMatchObject({ outcome: 'rejected' });
    expect(repeat).toMatchObject({
      status: 200,
      body: { outcome: 'repeat', decisionId: first.body.decisionId },
    });
    expect(other).toMatchObject({
      status: 409,
      body: { code: 'APPROVAL_DECIDED', details: { state: 'rejected', decidedBy: 'rita' } },
    });
  });

  it('after the time to decide is gone: 410, nothing is executed, and the list no longer shows it', async () => {
    const { runId, approvalId, fingerprint } = await stage.pausedRun('pay-soon');
    const paid = stage.paid.length;
    await new Promise((resolve) => setTimeout(resolve, 450));
    const list = await stage.ask('acme/rita', 'GET', '/v1/approvals');
    expect(JSON.stringify(list.body)).not.toContain(approvalId);
    const late = await stage.ask('acme/rita', 'POST', decisions(approvalId), {
      verdict: 'approve',
      fingerprint,
    });
    expect(late).toMatchObject({ status: 410, body: { code: 'APPROVAL_EXPIRED' } });
    await stage.fleet.until(runId, 'completed');
    expect(stage.paid.length).toBe(paid);
  });

  it('can be revoked until it is used, and then no more', async () => {
    const { runId, approvalId, fingerprint } = await stage.pausedRun();
    const pending = await stage.ask('acme/rita', 'POST', `/v1/approvals/${approvalId}/revocation`);
    expect(pending).toMatchObject({ status: 409, body: { code: 'APPROVAL_DECIDED' } });
    await stage.ask('acme/rita', 'POST', decisions(approvalId), { verdict: 'approve', fingerprint });
    await stage.fleet.until(runId, 'completed');
    const used = await stage.ask('acme/rita', 'POST', `/v1/approvals/${approvalId}/revocation`);
    expect(used).toMatchObject({
      status: 409,
      body: { code: 'APPROVAL_DECIDED', details: { state: 'consumed' } },
    });
  });

  it('by an id in capitals seals its words where the worker looks for them', async () => {
    const { runId, approvalId, fingerprint } = await stage.pausedRun();
    const shouted = approvalId.toUpperCase();
    await stage.ask('acme/rita', 'POST', decisions(shouted), { verdict: 'reject', fingerprint, words: 'no' });
    expect(await stage.fleet.until(runId, ['completed', 'quarantined'])).toBe('completed');
  });

  it('a cancelled run is final, and a second cancel says that it was', async () => {
    const { runId, approvalId, fingerprint } = await stage.pausedRun();
    const first = await stage.ask('acme/olga', 'POST', `/v1/runs/${runId}/cancel`);
    expect(first).toMatchObject({ status: 200, body: { outcome: 'cancelled', inFlight: [] } });
    const again = await stage.ask('acme/olga', 'POST', `/v1/runs/${runId}/cancel`, {});
    expect(again.body).toMatchObject({ outcome: 'ended', status: 'cancelled' });
    const late = await stage.ask('acme/rita', 'POST', decisions(approvalId), {
      verdict: 'approve',
      fingerprint,
    });
    expect(late).toMatchObject({ status: 409, body: { code: 'APPROVAL_DECIDED' } });
  });
});
