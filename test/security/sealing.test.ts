/**
 * Somebody holds the database, and in S26 the keys too, and changes what a person has approved: every change is found
 * before anything runs. The change is made on real rows, between the decision and the worker that resumes.
 */

import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { Agent } from '@openai/agents';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { releaseClient } from '../../examples/release-service/client.ts';
import { showApproval } from '../../src/approvals/index.ts';
import { action, idempotent, workflow } from '../../src/index.ts';
import { describeError } from '../../src/log.ts';
import { runResumeWorker } from '../../src/processes/index.ts';
import { KeyRing, type SealBinding } from '../../src/seal/index.ts';
import { resultsIn, scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { chainFaults } from '../support/sql-run.ts';

const SECRET = 'only-the-card-may-show-this';
const PARAMETERS = z.object({ to: z.string(), amount: z.number(), note: z.string() });

let provider: Provider;
let fleet: Fleet;
let logged = '';

beforeAll(async () => {
  provider = await startProvider();
  fleet = await createFleet([payments()], { name: 'sealing', backend: 'embedded' });
  await fleet.relay();
  await fleet.reconciler({ patienceMs: 200 });
});

afterAll(async () => {
  expect(await chainFaults(fleet.admin)).toEqual([]);
  await fleet.close();
  await provider.stop();
});

/** Two gated tools of one shape; the agent pays acme, then beta, one after the other. */
function payments() {
  const releases = releaseClient(provider?.url ?? 'http://127.0.0.1:1');
  const tool = (name: string) =>
    action({
      name,
      description: name,
      parameters: PARAMETERS,
      execute: (args, { operationKey, signal }) =>
        releases.create(name, args, { idempotencyKey: operationKey, signal }),
      recovery: idempotent({ keyLifetime: '1h' }),
      approval: { policy: 'payments' },
    });
  const tools = [tool('pay'), tool('refund')];
  const model = scriptedModel((turn, request) => {
    const to = ['acme', 'beta'][turn];
    return to === undefined
      ? `told ${resultsIn(request).length}`
      : [{ name: 'pay', arguments: { to, amount: 10, note: SECRET } }];
  });
  return workflow({
    name: 'payments',
    version: '1',
    agent: () => new Agent({ name: 'Payer', instructions: 'Pay.', tools }),
    modelProvider: scriptedProvider(model),
  });
}

type Run = { runId: string; tenant: string };

/** Runs that wait at their n-th pause, their approvals given, with no worker alive to act on them. */
async function approvedRuns(tenants: string[], pauses = 1): Promise<Run[]> {
  const worker = await fleet.worker();
  const runs = await Promise.all(
    tenants.map(async (tenant) => ({ tenant, runId: await fleet.start({ workflow: 'payments', tenant }) })),
  );
  for (let pause = 1; pause <= pauses; pause += 1) {
    await Promise.all(runs.map(({ runId }) => pausedAt(runId, pause)));
    if (pause === pauses) await worker.stop();
    await Promise.all(runs.map(({ runId }) => approve(runId)));
  }
  return runs;
}

async function approvedRun(pauses = 1): Promise<Run> {
  const [run] = await approvedRuns(['acme'], pauses);
  if (run === undefined) throw new Error('no run');
  return run;
}

async function twoRuns(tenants = ['acme', 'acme'], pauses = 1): Promise<[Run, Run]> {
  const [one, two] = await approvedRuns(tenants, pauses);
  if (one === undefined || two === undefined) throw new Error('no runs');
  return [one, two];
}

async function pausedAt(runId: string, segment: number): Promise<void> {
  for (const end = Date.now() + 20_000; Date.now() < end; await sleep(20)) {
    const [run] = await fleet.rows<{ status: string; segment: number }>(
      'select status, segment from countersign.runs where id = $1',
      [runId],
    );
    if (run?.status === 'awaiting_approval' && run.segment === segment) return;
  }
  throw new Error(`the run did not reach pause ${segment}`);
}

/** As a reviewer would, by way of the rows: who decides is not the matter here. */
async function approve(runId: string): Promise<void> {
  await fleet.rows(
    `select d.outcome from countersign.approvals a, countersign.decide_approval(a.tenant, a.id, 'approve', 'alice',
       a.fingerprint, gen_random_uuid(), null) d where a.run_id = $1 and a.state = 'pending'`,
    [runId],
  );
}

/** Starts a worker on the tampered row and waits until the run has come to rest. */
async function resume(runId: string, statuses: string[], keys = fleet.keys): Promise<void> {
  const log = pino(
    { level: 'debug', serializers: { err: describeError } },
    new Writable({
      write(chunk, _encoding, done) {
        logged += String(chunk);
        done();
      },
    }),
  );
  const worker = await runResumeWorker({
    databaseUrl: fleet.url,
    redisUrl: null,
    keys,
    workflows: [payments()],
    log,
    retryDelayMs: 50,
    allowForgetful: true,
  });
  try {
    await fleet.until(runId, statuses, 20_000);
  } finally {
    await worker.stop();
  }
}

type Place = { table: string; column: string; binding: SealBinding; where: string };

function checkpointAt({ runId, tenant }: { runId: string; tenant: string }, number: number): Place {
  return {
    table: 'checkpoints',
    column: 'sealed',
    binding: { tenant, table: 'checkpoints', column: 'sealed', row: runId, sequence: number },
    where: `run_id = '${runId}' and number = ${number}`,
  };
}

async function sealedAt(place: Place): Promise<Buffer> {
  const [row] = await fleet.rows<Record<string, Buffer>>(
    `select ${place.column} from countersign.${place.table} where ${place.where}`,
  );
  const sealed = row?.[place.column];
  if (sealed === undefined || sealed === null) throw new Error('nothing is sealed there');
  return sealed;
}

const put = (place: Place, sealed: Buffer) =>
  fleet.rows(`update countersign.${place.table} set ${place.column} = $1 where ${place.where}`, [sealed]);

/** With the keys: opens, changes, seals again in its place. */
async function rewrite(
  place: Place,
  purpose: 'state' | 'review',
  change: (text: string) => string,
): Promise<void> {
  const before = fleet.keys.openText(purpose, await sealedAt(place), place.binding);
  const after = change(before);
  expect(after).not.toBe(before);
  await put(place, fleet.keys.seal(purpose, after, place.binding));
}

async function actionOf(runId: string, segment = 0) {
  const [row] = await fleet.rows<{ id: string; call_id: string; state: string; attempt: number }>(
    'select id, call_id, state, attempt from countersign.actions where run_id = $1 and segment = $2',
    [runId, segment],
  );
  if (row === undefined) throw new Error('the run has no such action');
  return row;
}

/** Nothing happened, the approval is void and unspent, the alert is raised, and nobody will try again. */
async function expectQuarantined(runId: string, reason: string, segment = 0): Promise<void> {
  const calls = (await provider.client.counts()).calls;
  const [run] = await fleet.rows('select status, reason from countersign.runs where id = $1', [runId]);
  expect(run).toEqual({ status: 'quarantined', reason });
  const approvals = await fleet.rows<{ state: string }>(
    'select state from countersign.approvals where run_id = $1 order by created_at desc limit 1',
    [runId],
  );
  expect(approvals).toEqual([{ state: 'invalidated' }]);
  expect(await actionOf(runId, segment)).toMatchObject({ state: 'prepared', attempt: 0 });
  const events = await fleet.rows<{ kind: string; data: object }>(
    'select kind, data from countersign.events where run_id = $1 order by n',
    [runId],
  );
  expect(events).toContainEqual({ kind: 'security_alert', data: expect.objectContaining({ code: reason }) });
  const told = JSON.stringify(events) + logged;
  expect(told).not.toContain(SECRET);
  expect(told).not.toContain('evil');
  await resume(runId, ['quarantined']);
  await sleep(300);
  expect((await provider.client.counts()).calls).toBe(calls);
  expect((await provider.client.findBy('pay', 'to', 'evil')).effects).toEqual([]);
}

describe('S26: with the database and the keys, after the approval', () => {
  it('(a) other arguments everywhere in the state: quarantined, nothing runs', async () => {
    const run = await approvedRun();
    await rewrite(checkpointAt(run, 1), 'state', (text) => text.replaceAll('acme', 'evil'));
    await resume(run.runId, ['quarantined']);
    await expectQuarantined(run.runId, 'DIGEST_MISMATCH');
  });

  // Open: the SDK itself refuses this state, and its refusal counts as transient: five claims, then a dead letter, with
  // no alert and the approval still valid. Nothing runs.
  it.fails('(b) other arguments in the pending call alone: quarantined, nothing runs', async () => {
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
  it.fails('other arguments on the card than those that will run: not shown as if they were what a decision is about', async () => {
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

const argumentsOf = (tenant: string, id: string): Place => ({
  table: 'actions',
  column: 'sealed_arguments',
  binding: { tenant, table: 'actions', column: 'sealed_arguments', row: id },
  where: `id = '${id}'`,
});

describe('S27: ciphertext in another place, or damaged', () => {
  type Blob = (mine: Run, others: Run) => Promise<Buffer>;
  const damages: [string, string, Blob][] = [
    ['of another tenant’s run', 'globex', async (_mine, others) => sealedAt(checkpointAt(others, 1))],
    ['of another run', 'acme', async (_mine, others) => sealedAt(checkpointAt(others, 1))],
    ['of another pause of the same run', 'acme', async (mine) => sealedAt(checkpointAt(mine, 0))],
    [
      'of another column',
      'acme',
      async (mine) => sealedAt(argumentsOf('acme', (await actionOf(mine.runId)).id)),
    ],
    ['with one bit flipped', 'acme', async (mine) => flipped(await sealedAt(checkpointAt(mine, 1)), -20)],
    [
      'with one bit of its header flipped',
      'acme',
      async (mine) => flipped(await sealedAt(checkpointAt(mine, 1)), 8),
    ],
    ['cut short', 'acme', async (mine) => (await sealedAt(checkpointAt(mine, 1))).subarray(0, -1)],
    ['empty', 'acme', async () => Buffer.alloc(0)],
  ];

  it.each(damages)('a checkpoint %s: quarantined before a byte is read', async (_what, tenant, blob) => {
    const [run, others] = await twoRuns(['acme', tenant]);
    await put(checkpointAt(run, 1), await blob(run, others));
    await resume(run.runId, ['quarantined']);
    await expectQuarantined(run.runId, 'SEAL_BROKEN');
  });

  it('the arguments of two actions, swapped: quarantined, nothing runs', async () => {
    const [one, two] = await twoRuns();
    const places = [
      argumentsOf('acme', (await actionOf(one.runId)).id),
      argumentsOf('acme', (await actionOf(two.runId)).id),
    ] as const;
    const sealed = [await sealedAt(places[0]), await sealedAt(places[1])] as const;
    await put(places[0], sealed[1]);
    await put(places[1], sealed[0]);
    await resume(one.runId, ['quarantined']);
    await expectQuarantined(one.runId, 'SEAL_BROKEN');
    await resume(two.runId, ['quarantined']);
    await expectQuarantined(two.runId, 'SEAL_BROKEN');
  });

  it('a receipt in another action’s place answers for nobody', async () => {
    const [one, two] = await twoRuns(['acme', 'acme'], 2);
    await fleet.rows(
      `update countersign.actions a set sealed_result = b.sealed_result from countersign.actions b
       where a.id = $1 and b.id = $2`,
      [(await actionOf(one.runId)).id, (await actionOf(two.runId)).id],
    );
    // Force the replay of the first segment, which asks the ledger for its first action again.
    await fleet.rows('update countersign.runs set segment = 1 where id = $1', [one.runId]);
    await resume(one.runId, ['quarantined', 'completed', 'awaiting_approval']);
    const [run] = await fleet.rows('select status, reason from countersign.runs where id = $1', [one.runId]);
    expect(run).toEqual({ status: 'quarantined', reason: 'SEAL_BROKEN' });
  });
});

describe('intact, but not for this worker', () => {
  it('a seal of a newer version is parked, not quarantined, and nothing runs', async () => {
    const run = await approvedRun();
    const place = checkpointAt(run, 1);
    const whole = await sealedAt(place);
    const newer = Buffer.from(whole);
    newer[4] = 9;
    const end = 7 + (newer[6] ?? 0);
    newer.writeUInt32BE(crc32(newer.subarray(0, end)), end);
    await put(place, newer);
    await resumeUntilReason(run.runId, 'SEAL_VERSION_UNSUPPORTED', fleet.keys);
    await expectParkedThenCompleted(run.runId, 'SEAL_VERSION_UNSUPPORTED', () => put(place, whole));
  });

  it.each([
    ['state', { state: true, review: false }],
    ['review', { state: false, review: true }],
  ] as const)(
    'without the %s key the run is parked with no attempt spent, and goes on when the key is back',
    async (_which, lost) => {
      const run = await approvedRun();
      const other = KeyRing.generate();
      const keys = KeyRing.parse({
        state: lost.state ? other.state : fleet.keySpec.state,
        review: lost.review ? other.review : fleet.keySpec.review,
      });
      await resumeUntilReason(run.runId, 'KEY_MISSING', keys);
      await expectParkedThenCompleted(run.runId, 'KEY_MISSING', async () => []);
    },
  );

  async function resumeUntilReason(runId: string, reason: string, keys: KeyRing): Promise<void> {
    const worker = await fleet.worker({ keys });
    try {
      for (const end = Date.now() + 20_000; Date.now() < end; await sleep(20)) {
        const [run] = await fleet.rows<{ reason: string }>(
          'select reason from countersign.runs where id = $1',
          [runId],
        );
        if (run?.reason === reason) return;
      }
      throw new Error(`the run was not parked for ${reason}`);
    } finally {
      await worker.stop();
    }
  }

  async function expectParkedThenCompleted(
    runId: string,
    reason: string,
    mend: () => Promise<unknown>,
  ): Promise<void> {
    const kinds = await fleet.rows<{ kind: string; data: { reason?: string } }>(
      "select kind, data from countersign.events where run_id = $1 and kind in ('run_parked', 'security_alert')",
      [runId],
    );
    expect(kinds).toContainEqual({ kind: 'run_parked', data: { reason } });
    expect(kinds.map(({ kind }) => kind)).not.toContain('security_alert');
    expect(await actionOf(runId)).toMatchObject({ state: 'prepared', attempt: 0 });
    const [run] = await fleet.rows('select attempts_in_round from countersign.runs where id = $1', [runId]);
    expect(run).toEqual({ attempts_in_round: 0 });
    await mend();
    const worker = await fleet.worker();
    await pausedAt(runId, 2);
    await approve(runId);
    await fleet.until(runId, 'completed', 20_000);
    expect(await actionOf(runId)).toMatchObject({ state: 'succeeded', attempt: 1 });
    await worker.stop();
  }
});

function flipped(sealed: Buffer, at: number): Buffer {
  const copy = Buffer.from(sealed);
  const index = at < 0 ? copy.length + at : at;
  copy[index] = (copy[index] ?? 0) ^ 1;
  return copy;
}
