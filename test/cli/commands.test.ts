import path from 'node:path';
import { Agent } from '@openai/agents';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { action, manual, workflow } from '../../src/index.ts';
import { resultsIn, scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
import { createTestDatabase } from '../support/database.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { type CliResult, cli, spawnCli } from './run-cli.ts';

let fleet: Fleet;
const paid: unknown[] = [];

beforeAll(async () => {
  const pay = action({
    name: 'pay',
    description: 'Pay somebody',
    parameters: z.object({ to: z.string(), amount: z.number() }),
    execute: (args) => {
      paid.push(args);
      return `paid ${args.to}`;
    },
    recovery: manual(),
    review: ({ to, amount }) => ({ summary: `Pay ${amount} to ${to}` }),
    approval: { policy: 'payments' },
  });
  const payTo = (name: string, to: string) =>
    workflow({
      name,
      version: '1',
      agent: () => new Agent({ name: 'Payer', tools: [pay] }),
      modelProvider: scriptedProvider(
        scriptedModel((turn, request) =>
          turn === 0 ? [{ name: 'pay', arguments: { to, amount: 10 } }] : `told: ${resultsIn(request)[0]}`,
        ),
      ),
    });
  fleet = await createFleet([payTo('pay', 'acme'), payTo('pay-oddly', 'ac\u202eme')], {
    name: 'cli',
    backend: 'embedded',
  });
  await fleet.relay();
  await fleet.worker();
});
afterAll(() => fleet?.close());

const env = () => ({
  DATABASE_URL: fleet.url,
  COUNTERSIGN_TENANT: 'acme',
  COUNTERSIGN_REVIEW_KEYS: fleet.keySpec.review,
});
const ours = (...args: string[]): Promise<CliResult> => cli(args, env());

type StartAnswer = { runId: string; status: string; approvals: { id: string; state: string }[] };

async function paused(workflowName = 'pay') {
  const started = (
    await ours('start', workflowName, '--input', 'go', '--wait', '--json')
  ).json<StartAnswer>();
  expect(started.status).toBe('awaiting_approval');
  return { runId: started.runId, approvalId: started.approvals[0]?.id ?? '' };
}

describe('from start to explanation', () => {
  it('a run is started, seen, approved by its card, and explained; each step is one JSON value', async () => {
    const { runId, approvalId } = await paused();
    const list = (await ours('approvals', '--json')).json<{ id: string }[]>();
    expect(list.map(({ id }) => id)).toContain(approvalId);
    const card = (await ours('approvals', 'show', approvalId, '--json')).json();
    expect(card).toMatchObject({ state: 'pending', policy: 'payments', hidden: [] });
    const approved = (await ours('approvals', 'approve', approvalId, '--as', 'alice', '--json')).json();
    expect(approved).toMatchObject({
      verdict: 'approve',
      outcome: 'approved',
      decidedBy: 'alice',
      card: { fingerprint: card.fingerprint },
    });
    await fleet.until(runId, 'completed');
    expect(paid).toEqual([{ to: 'acme', amount: 10 }]);
    const shown = (await ours('--json', 'runs', 'show', runId)).json();
    expect(shown).toMatchObject({ status: 'completed', output: 'told: paid acme' });
    const explained = (await ours('runs', 'explain', runId, '--json')).json();
    expect(explained).toMatchObject({ runId, status: 'completed', unknown: [] });
    const runs = (await ours('runs', 'list', '--status', 'completed', '--json')).json<{ id: string }[]>();
    expect(runs.map(({ id }) => id)).toContain(runId);
    expect((await ours('runs', 'explain', runId)).stdout).toMatch(/alice approved/);
  });

  it('a rejection reaches the model in the words that were typed', async () => {
    const { runId, approvalId } = await paused();
    const rejected = await ours(
      'approvals',
      'reject',
      approvalId,
      '--words',
      'not on a Friday',
      '--as',
      'bob',
    );
    expect(rejected).toMatchObject({ code: 0 });
    expect(rejected.stdout).toMatch(/Rejected by bob; nothing will be executed/);
    await fleet.until(runId, 'completed');
    expect(await fleet.output(runId)).toBe('told: not on a Friday');
  });

  it('a check before a deploy ends with 1 when that code would not resume a run that waits', async () => {
    const { runId, approvalId } = await paused();
    const other = path.join(import.meta.dirname, '../../dist/examples/workflows.js');
    const check = await spawnCli(['versions', 'check', '--workflows', other, '--json'], {
      ...env(),
      COUNTERSIGN_STATE_KEYS: fleet.keySpec.state,
    });
    expect(check.json<{ wouldNot: { runId: string }[] }>().wouldNot.map((run) => run.runId)).toContain(runId);
    expect(check.code).toBe(1);
    await ours('approvals', 'reject', approvalId, '--words', 'only to look');
    await fleet.until(runId, 'completed');
  });

  it('copies of a job are delivered, counted, and change nothing', async () => {
    const { runId, approvalId } = await paused();
    await ours('approvals', 'approve', approvalId, '--json');
    const before = paid.length;
    const sent = (await ours('deliver', '--duplicate', '3', runId, '--json')).json<{ jobIds: string[] }>();
    expect(sent).toMatchObject({ runId, queue: 'postgres' });
    expect(new Set(sent.jobIds).size).toBe(3);
    await fleet.until(runId, 'completed');
    await ours('deliver', '--duplicate', '2', runId);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(paid.length).toBeLessThanOrEqual(before + 1);
    expect(
      await fleet.rows("select 1 from countersign.events where run_id = $1 and kind = 'action_dispatched'", [
        runId,
      ]),
    ).toHaveLength(1);
  });

  it('a start is idempotent under --key, and another input under it is refused', async () => {
    const first = (await ours('start', 'pay', '--key', 'k', '--input', 'a', '--json')).json();
    const again = (await ours('start', 'pay', '--key', 'k', '--input', 'a', '--json')).json();
    expect(again).toEqual({ runId: first.runId, outcome: 'existing' });
    const other = await ours('start', 'pay', '--key', 'k', '--input', 'b', '--json');
    expect(other.code).toBe(1);
    expect(other.json()).toMatchObject({ error: { code: 'CLIENT_KEY_CONFLICT', details: { field: 'key' } } });
  });
});

describe('as processes', () => {
  it('the same job is done by one command after another', async () => {
    const run = (...args: string[]) => spawnCli([...args, '--json'], env());
    const started = (await run('start', 'pay', '--wait')).json<StartAnswer>();
    const approved = await run('approvals', 'approve', started.approvals[0]?.id ?? '', '--as', 'alice');
    expect(approved).toMatchObject({ code: 0, stderr: '' });
    await fleet.until(started.runId, 'completed');
    const explained = await run('runs', 'explain', started.runId);
    expect(explained.json()).toMatchObject({ status: 'completed' });
  });
});

describe('a decision is bound to what was seen', () => {
  it('a fingerprint of another card decides nothing', async () => {
    const { runId, approvalId } = await paused();
    const refused = await ours('approvals', 'approve', approvalId, '--fingerprint', '0'.repeat(64), '--json');
    expect(refused.code).toBe(1);
    expect(refused.json()).toMatchObject({ error: { code: 'APPROVAL_CHANGED' } });
    await fleet.until(runId, 'awaiting_approval');
  });

  it('the card writes out what does not show, and warns of it', async () => {
    const { approvalId } = await paused('pay-oddly');
    const { stdout } = await ours('approvals', 'show', approvalId);
    expect(stdout).toContain('"to": "ac\\u{202e}me"');
    expect(stdout).toMatch(/WARNING: .*U\+202E/);
    expect(stdout).not.toContain('\u202e');
    expect((await ours('approvals', 'show', approvalId, '--json')).json()).toMatchObject({
      hidden: ['U+202E'],
    });
  });

  it('the second decision is refused with the name of the first', async () => {
    const { approvalId } = await paused();
    await ours('approvals', 'reject', approvalId, '--words', 'no', '--as', 'alice');
    const second = await ours('approvals', 'approve', approvalId, '--as', 'bob', '--json');
    expect(second.code).toBe(1);
    expect(second.json()).toMatchObject({
      error: { code: 'APPROVAL_DECIDED', details: { state: 'rejected', decidedBy: 'alice' } },
    });
    expect((await ours('approvals', 'approve', approvalId, '--as', 'bob')).stderr).toMatch(
      /^error APPROVAL_DECIDED: This approval is already rejected by alice/,
    );
  });

  it('a cancelled run takes its approval along', async () => {
    const { runId, approvalId } = await paused();
    const cancelled = (await ours('runs', 'cancel', runId, '--json')).json();
    expect(cancelled).toMatchObject({ runId, outcome: 'cancelled', inFlight: [] });
    const late = await ours('approvals', 'approve', approvalId, '--json');
    expect(late.json()).toMatchObject({ error: { code: 'APPROVAL_DECIDED' } });
    const revoked = await ours('approvals', 'revoke', approvalId, '--json');
    expect(revoked.json()).toMatchObject({ error: { code: 'APPROVAL_DECIDED' } });
  });
});

describe('what does not exist', () => {
  const unknown = '00000000-0000-4000-8000-000000000000';

  it.each([
    [['runs', 'show', unknown], 'RUN_NOT_FOUND'],
    [['runs', 'explain', unknown], 'RUN_NOT_FOUND'],
    [['runs', 'cancel', 'x'], 'RUN_NOT_FOUND'],
    [['deliver', '--duplicate', '1', unknown], 'RUN_NOT_FOUND'],
    [['approvals', 'show', unknown], 'APPROVAL_NOT_FOUND'],
    [['approvals', 'approve', unknown], 'APPROVAL_NOT_FOUND'],
    [['approvals', 'revoke', 'x'], 'APPROVAL_NOT_FOUND'],
    [['start', 'nope'], 'WORKFLOW_UNKNOWN'],
  ])('is a typed refusal with exit code 1: %j', async (args, code) => {
    const result = await ours(...args, '--json');
    expect(result.code).toBe(1);
    expect(result.json()).toMatchObject({ error: { code } });
  });

  it('includes everything of another tenant', async () => {
    const { runId, approvalId } = await paused();
    for (const args of [
      ['runs', 'show', runId],
      ['runs', 'cancel', runId],
      ['approvals', 'approve', approvalId],
      ['deliver', '--duplicate', '1', runId],
    ]) {
      const theirs = await ours(...args, '--tenant', 'umbrella', '--json');
      expect(theirs.json<{ error: { code: string } }>().error.code).toMatch(/_NOT_FOUND$/);
    }
    expect((await ours('runs', '--tenant', 'umbrella', '--json')).json()).toEqual([]);
    await fleet.until(runId, 'awaiting_approval');
  });
});

describe('migrate', () => {
  it('makes the schema and the queue’s, and says so again when there is nothing to do', async () => {
    const database = await createTestDatabase('cli migrate');
    await using _ = { [Symbol.asyncDispose]: () => database.drop() };
    const at = { DATABASE_URL: database.url };
    const first = (await cli(['migrate', '--json'], at)).json<{ current: number }>();
    expect(first).toMatchObject({ applied: [], queue: 'postgres' });
    expect(await cli(['migrate'], at)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`up to date, at migration ${first.current}`),
    });
  });
});
