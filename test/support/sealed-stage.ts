/**
 * Runs that a person has approved and no worker has resumed yet, and the means to change what is sealed in them, with
 * the keys or without. One stage for each test file.
 */
import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent } from '@openai/agents';
import { pino } from 'pino';
import { afterAll, beforeAll, expect } from 'vitest';
import { z } from 'zod';
import { releaseClient } from '../../examples/release-service/client.ts';
import { action, idempotent, workflow } from '../../src/index.ts';
import { describeError } from '../../src/log.ts';
import { runResumeWorker } from '../../src/processes/index.ts';
import type { SealBinding } from '../../src/seal/index.ts';
import { resultsIn, scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
import { createFleet, type Fleet } from './fleet.ts';
import { type Provider, startProvider } from './provider.ts';
import { chainFaults } from './run-facts.ts';

const SECRET = 'only-the-card-may-show-this';
const PARAMETERS = z.object({ to: z.string(), amount: z.number(), note: z.string() });

export let provider: Provider;
export let fleet: Fleet;
/** No two runs ask for the same operation. */
let paid = 9;
let logged = '';

/** Sets the file's stage up and down. */
export function useSealedStage(): void {
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
}

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
      : [{ name: 'pay', arguments: { to, amount: ++paid, note: SECRET } }];
  });
  return workflow({
    name: 'payments',
    version: '1',
    agent: () => new Agent({ name: 'Payer', instructions: 'Pay.', tools }),
    modelProvider: scriptedProvider(model),
  });
}

export type Run = { runId: string; tenant: string };

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

export async function approvedRun(pauses = 1): Promise<Run> {
  const [run] = await approvedRuns(['acme'], pauses);
  if (run === undefined) throw new Error('no run');
  return run;
}

export async function twoRuns(tenants = ['acme', 'acme'], pauses = 1): Promise<[Run, Run]> {
  const [one, two] = await approvedRuns(tenants, pauses);
  if (one === undefined || two === undefined) throw new Error('no runs');
  return [one, two];
}

export async function pausedAt(runId: string, segment: number): Promise<void> {
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
export async function approve(runId: string): Promise<void> {
  await fleet.rows(
    `select d.outcome from countersign.approvals a, countersign.decide_approval(a.tenant, a.id, 'approve', 'alice',
       a.fingerprint, gen_random_uuid(), null) d where a.run_id = $1 and a.state = 'pending'`,
    [runId],
  );
}

/** Starts a worker on the tampered row and waits until the run has come to rest. */
export async function resume(runId: string, statuses: string[], keys = fleet.keys): Promise<void> {
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

export type Place = { table: string; column: string; binding: SealBinding; where: string };

export function checkpointAt({ runId, tenant }: { runId: string; tenant: string }, number: number): Place {
  return {
    table: 'checkpoints',
    column: 'sealed',
    binding: { tenant, table: 'checkpoints', column: 'sealed', row: runId, sequence: number },
    where: `run_id = '${runId}' and number = ${number}`,
  };
}

export async function sealedAt(place: Place): Promise<Buffer> {
  const [row] = await fleet.rows<Record<string, Buffer>>(
    `select ${place.column} from countersign.${place.table} where ${place.where}`,
  );
  const sealed = row?.[place.column];
  if (sealed === undefined || sealed === null) throw new Error('nothing is sealed there');
  return sealed;
}

export const put = (place: Place, sealed: Buffer) =>
  fleet.rows(`update countersign.${place.table} set ${place.column} = $1 where ${place.where}`, [sealed]);

/** With the keys: opens, changes, seals again in its place. */
export async function rewrite(
  place: Place,
  purpose: 'state' | 'review',
  change: (text: string) => string,
): Promise<void> {
  const before = fleet.keys.openText(purpose, await sealedAt(place), place.binding);
  const after = change(before);
  expect(after).not.toBe(before);
  await put(place, fleet.keys.seal(purpose, after, place.binding));
}

export async function actionOf(runId: string, segment = 0) {
  const [row] = await fleet.rows<{ id: string; call_id: string; state: string; attempt: number }>(
    'select id, call_id, state, attempt from countersign.actions where run_id = $1 and segment = $2',
    [runId, segment],
  );
  if (row === undefined) throw new Error('the run has no such action');
  return row;
}

/** Nothing happened, the approval is void and unspent, the alert is raised, and nobody will try again. */
export async function expectQuarantined(runId: string, reason: string, segment = 0): Promise<void> {
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

export const argumentsOf = (tenant: string, id: string): Place => ({
  table: 'actions',
  column: 'sealed_arguments',
  binding: { tenant, table: 'actions', column: 'sealed_arguments', row: id },
  where: `id = '${id}'`,
});
