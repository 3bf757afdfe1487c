/**
 * One ledger row, many who want it (S20); and one operation asked for twice. The provider counts: nothing here is
 * believed because a status says so.
 */
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  type ActionDefinition,
  action,
  definitionOf,
  idempotent,
  lookup,
  mintAction,
  performAction,
  Suspended,
  transactional,
} from '../../src/actions/index.ts';
import type { LedgerAction } from '../../src/actions/ledger.ts';
import { createLog } from '../../src/log.ts';
import { callStep, type Database, openDatabase } from '../../src/postgres/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { chainFaults, facts } from '../support/run-facts.ts';
import { openSession, waitsForLock } from '../support/sessions.ts';
import {
  announceWorker,
  approvedRun,
  claim,
  intend,
  release,
  type SqlRun,
  settle,
  startRun,
  sweep,
} from '../support/sql-run.ts';

const CROWD = 50;
const keys = KeyRing.parse(KeyRing.generate());
const log = createLog('ledger', process.env.TEST_LOG ?? 'silent');
const PARAMETERS = z.object({ to: z.string(), amount: z.number() });

let provider: Provider;
let database: TestDatabase;
let admin: Database;
let crowd: Database;
let worker: string;
const sessions: pg.Client[] = [];

beforeAll(async () => {
  provider = await startProvider();
  database = await createTestDatabase('ledger');
  admin = openDatabase({ url: database.url, role: null, max: 4 });
  crowd = openDatabase({ url: database.url, role: 'countersign_worker', max: CROWD });
  worker = await announceWorker(admin);
});

afterEach(async () => {
  await Promise.all(sessions.splice(0).map((opened) => opened.end()));
  await provider.client.reset();
});

afterAll(async () => {
  expect(await chainFaults(admin)).toEqual([]);
  await crowd.close();
  await admin.close();
  await database.drop();
  await provider.stop();
});

describe('S20: many callers, one key', () => {
  it('50 concurrent intends of one action dispatch it once, and no caller gets an error', async () => {
    const run = await approvedRun(admin, worker, [{}]);
    const outcomes = await Promise.all(
      Array.from({ length: CROWD }, async () => (await intend(crowd, run, first(run))).outcome),
    );
    expect(count(outcomes)).toEqual({ dispatched: 1, held: CROWD - 1 });
    expect((await facts(admin, run)).kinds.filter((kind) => kind === 'action_dispatched')).toHaveLength(1);
  });

  it.each([
    ['lookup', () => lookup(async () => null, { settlesWithin: '1s' })],
    ['idempotent', () => idempotent({ keyLifetime: '1h' })],
  ] as const)(
    '50 concurrent calls of one %s action reach the provider once; later all get the stored receipt',
    async (_kind, recovery) => {
      const job = await preparedRun(pay({ recovery: recovery() }), { to: 'acme', amount: 10 });
      await provider.client.fault({ fault: { type: 'delay_answer', ms: 100 } });
      const ends = await Promise.allSettled(Array.from({ length: CROWD }, () => job.perform()));
      const told = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
      const thrown = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason] : []));
      expect(told).toHaveLength(1);
      expect(thrown.every((error) => error instanceof Suspended && error.code === 'HELD')).toBe(true);
      expect(await provider.client.counts()).toMatchObject({ calls: 1, commits: 1 });
      const later = await Promise.all(Array.from({ length: 10 }, () => job.perform()));
      expect(new Set([...later, ...told]).size).toBe(1);
      expect((await provider.client.counts()).calls).toBe(1);
    },
  );

  it('the same key with other arguments is a typed conflict, before and after the receipt, and sees none of it', async () => {
    for (const receiptFirst of [false, true]) {
      const job = await preparedRun(pay(), { to: 'acme', amount: 10 });
      if (receiptFirst) {
        await job.perform();
      }
      const before = await provider.client.counts();
      await expect(job.perform({ to: 'evil', amount: 10 })).rejects.toMatchObject({
        code: 'DIGEST_MISMATCH',
      });
      expect(await provider.client.counts()).toEqual(before);
      const after = await facts(admin, job.run);
      expect(after.run).toMatchObject({ status: 'quarantined', reason: 'DIGEST_MISMATCH' });
      expect(after.kinds).toContain('security_alert');
    }
  });

  it('another tool under the same key is the same conflict', async () => {
    const job = await preparedRun(pay(), { to: 'acme', amount: 10 });
    const other = { ...job, definition: definition(pay({ name: 'refund' })) };
    await expect(perform(other, { to: 'acme', amount: 10 }, 'refund')).rejects.toMatchObject({
      code: 'DIGEST_MISMATCH',
    });
    expect((await provider.client.counts()).calls).toBe(0);
  });

  it('arguments written in another order, or with other spaces, are the same arguments', async () => {
    const job = await preparedRun(pay(), { to: 'acme', amount: 10 });
    await perform(job, '{ "amount": 1e1, "to": "\\u0061cme" }');
    expect(await provider.client.counts()).toMatchObject({ calls: 1, commits: 1 });
  });
});

describe('one operation, asked for by two runs', () => {
  it('the second is held without an error when both intend at once, and goes on when the first is settled', async () => {
    const [one, two] = await identical();
    const [early, late] = [await session(), await session()];
    await early.query('begin');
    expect((await intend(early, one, first(one))).outcome).toBe('dispatched');
    const second = intend(late, two, first(two));
    await waitsForLock(admin, late);
    await early.query('commit');
    expect((await second).outcome).toBe('held');
    const held = await facts(admin, two);
    expect(held.actions[0]).toMatchObject({
      state: 'prepared',
      attempt: 0,
      held_by: first(one).id,
      approval: 'approved',
    });
    expect(held.kinds).toContain('action_held');

    expect(await release(admin, two)).toBe('awaiting_reconciliation');
    expect((await facts(admin, two)).run.reason).toBe('SAME_OPERATION_UNRESOLVED');
    await settle(admin, one, first(one), { attempt: 1, outcome: 'unknown', epoch: one.epoch });
    expect(await sweep(admin, two)).toBe('nothing');
    await settle(admin, one, first(one), { attempt: 1, outcome: 'failed', source: 'lookup' });
    expect(await sweep(admin, two)).toBe('settled');
    expect((await claim(admin, two, { wake: 3 })).outcome).toBe('claimed');
    expect((await intend(admin, two, first(two))).outcome).toBe('dispatched');
  });

  it('a decision taken before the first succeeded does not authorise the second; one taken after does (B10)', async () => {
    const [one, two] = await identical();
    await intend(admin, one, first(one));
    await settle(admin, one, first(one), { attempt: 1, outcome: 'succeeded', epoch: one.epoch });
    expect((await intend(admin, two, first(two))).outcome).toBe('decide_again');
    expect((await facts(admin, two)).actions[0]).toMatchObject({ state: 'prepared', approval: 'approved' });
    const decided = await admin.pool.query(
      `update countersign.approvals set decided_at = clock_timestamp() where run_id = $1`,
      [two.id],
    );
    expect(decided.rowCount).toBe(1);
    expect((await intend(admin, two, first(two))).outcome).toBe('dispatched');
  });

  it('the second is sent when the first’s transaction rolls back', async () => {
    const [one, two] = await identical();
    const [early, late] = [await session(), await session()];
    await early.query('begin');
    await intend(early, one, first(one));
    const second = intend(late, two, first(two));
    await waitsForLock(admin, late);
    await early.query('rollback');
    expect((await second).outcome).toBe('dispatched');
  });

  it('of twenty runs one is in the open at any time, and every one gets its turn', async () => {
    const operation = `rush ${Math.random()}`;
    const runs: SqlRun[] = [];
    for (let index = 0; index < 20; index += 1) {
      runs.push(await approvedRun(admin, worker, [{ operation }]));
    }
    for (let left = [...runs]; left.length > 0; ) {
      const outcomes = await Promise.all(left.map((run) => intend(crowd, run, first(run))));
      expect(count(outcomes.map(({ outcome }) => outcome))).toEqual({
        dispatched: 1,
        ...(left.length > 1 ? { held: left.length - 1 } : {}),
      });
      const winner = left[outcomes.findIndex(({ outcome }) => outcome === 'dispatched')];
      if (winner === undefined) throw new Error('nobody was dispatched');
      await settle(admin, winner, first(winner), { attempt: 1, outcome: 'failed', epoch: winner.epoch });
      left = left.filter((run) => run !== winner);
    }
  });

  it('in two tenants are two operations', async () => {
    const operation = 'shared by chance';
    const one = await approvedRun(admin, worker, [{ operation }], 'one');
    const two = await approvedRun(admin, worker, [{ operation }], 'two');
    expect((await intend(admin, one, first(one))).outcome).toBe('dispatched');
    expect((await intend(admin, two, first(two))).outcome).toBe('dispatched');
  });

  it('is two calls at the provider, never at once, when it is really meant twice', async () => {
    const tool = pay();
    const [one, two] = [
      await preparedRun(tool, { to: 'twice', amount: 1 }),
      await preparedRun(tool, { to: 'twice', amount: 1 }),
    ];
    await provider.client.fault({ fault: { type: 'delay_commit', ms: 150 }, next: 2 });
    const ends = await Promise.allSettled([one.perform(), two.perform()]);
    expect(ends.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect((await provider.client.counts()).calls).toBe(1);
    await (ends[0]?.status === 'rejected' ? one : two).perform();
    expect(await provider.client.counts()).toMatchObject({ calls: 2, commits: 2 });
    const order = (await provider.client.log()).map(({ event }) => event);
    expect(order.indexOf('answered')).toBeLessThan(order.lastIndexOf('received'));
  });

  it('the wait of a transactional one is committed, though its effect is not', async () => {
    const args = { to: 'ledger', amount: 1 };
    const [one, two] = [
      await preparedRun(pay(), args),
      await preparedRun(pay({ recovery: transactional() }), args),
    ];
    await provider.client.fault({ fault: { type: 'drop' }, next: 1 });
    await expect(one.perform()).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' });
    await expect(two.perform()).rejects.toMatchObject({ code: 'HELD' });
    const held = await facts(admin, two.run);
    expect(held.actions[0]).toMatchObject({ state: 'prepared', held_by: one.action.id });
    expect(held.kinds).toContain('action_held');
  });

  it('does not wait when its author says that it is repeatable', async () => {
    const tool = pay({ repeatable: true });
    const jobs = [
      await preparedRun(tool, { to: 'tick', amount: 1 }),
      await preparedRun(tool, { to: 'tick', amount: 1 }),
    ];
    await provider.client.fault({ fault: { type: 'delay_commit', ms: 100 }, next: 2 });
    await Promise.all(jobs.map((job) => job.perform()));
    expect(await provider.client.counts()).toMatchObject({ calls: 2, commits: 2 });
  });
});

type PayOptions = { name?: string; repeatable?: boolean; recovery?: object };

function pay(options: PayOptions = {}) {
  return action({
    name: options.name ?? 'pay',
    description: 'Pay somebody',
    parameters: PARAMETERS,
    execute: (args, { operationKey, signal }) =>
      provider.client.create('payments', args, { idempotencyKey: operationKey, signal }),
    recovery: (options.recovery ?? lookup(async () => null, { settlesWithin: '1s' })) as ReturnType<
      typeof lookup
    >,
    repeatable: options.repeatable ?? false,
  });
}

type Job = { run: SqlRun; definition: ActionDefinition; action: LedgerAction };

/** A claimed run with one ungated action in its ledger, as its worker holds it. */
async function preparedRun(tool: object, args: Record<string, unknown>) {
  const job = { run: await startRun(admin, worker), definition: definition(tool) };
  await claim(admin, job.run);
  const id = crypto.randomUUID();
  const argumentsText = JSON.stringify(args);
  const minted = mintAction({
    id,
    callId: `call_${id}`,
    tenant: job.run.tenant,
    definition: job.definition,
    argumentsText,
    keys,
  });
  const response = { path: '', n: 0, request_digest: 'd', sealed: '', usage: {} };
  await callStep(admin, 'journal_responses', {
    tenant: job.run.tenant,
    run: job.run.id,
    epoch: job.run.epoch,
    call: response,
    actions: [minted.row],
  });
  job.run.actions.push({
    id,
    callId: `call_${id}`,
    tool: 'pay',
    digest: '',
    approvalId: '',
    fingerprint: '',
  });
  const whole = { ...job, action: minted.action };
  return { ...whole, perform: (other: Record<string, unknown> = args) => perform(whole, other) };
}

function perform(job: Job, args: Record<string, unknown> | string, tool = 'pay'): Promise<string> {
  const { run } = job;
  return performAction(
    { db: crowd, keys, log, tenant: run.tenant, runId: run.id, epoch: run.epoch, context: {} },
    job.definition,
    job.action,
    {
      callId: job.action.callId,
      tool,
      argumentsText: typeof args === 'string' ? args : JSON.stringify(args),
      path: '',
      aborted: false,
    },
  );
}

function definition(tool: object): ActionDefinition {
  const found = definitionOf(tool);
  if (found === undefined) throw new Error('not an action');
  return found;
}

async function identical(): Promise<[SqlRun, SqlRun]> {
  const operation = `the same ${Math.random()}`;
  return [
    await approvedRun(admin, worker, [{ operation }]),
    await approvedRun(admin, worker, [{ operation }]),
  ];
}

async function session(): Promise<pg.Client> {
  const opened = await openSession(database.url, 'countersign_worker');
  sessions.push(opened);
  return opened;
}

function first(run: SqlRun) {
  const [only] = run.actions;
  if (only === undefined) throw new Error('the run has no action');
  return only;
}

function count(values: string[]): Record<string, number> {
  return Object.fromEntries(
    [...new Set(values)].map((value) => [value, values.filter((each) => each === value).length]),
  );
}
