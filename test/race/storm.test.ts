/**
 * Everything at once, on purpose without a plan: workers that die, freeze and come back, reviewers who change their
 * minds, two reconcilers with stale answers, a sweeper, a person who cancels. Each is a real session; the outside world
 * is a map that counts. The seed is printed when something breaks.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { callFunction, type Database, openDatabase } from '../../src/postgres/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { chainFaults, facts } from '../support/run-facts.ts';
import { openSession } from '../support/sessions.ts';
import {
  announceWorker,
  askAgain,
  cancel,
  claim,
  decideBy,
  finish,
  intend,
  pausedRun,
  release,
  revoke,
  SQL_WORKFLOW,
  type SqlAction,
  type SqlRun,
  settle,
  sweep,
} from '../support/sql-run.ts';

const STORM_MS = 5_000;
const CALM_MS = 20_000;
const RUNS = 10;
const SEED = Number(process.env.STORM_SEED ?? Math.floor(Math.random() * 2 ** 31));
/** No effect leaves later than this after its dispatch; the grace before "absent" counts is longer. */
const WINDOW_MS = 60;
const TIMES = { sendWithinMs: 60, callTimeoutMs: 60, settlesWithinMs: 400 };

let state = SEED;
/** Mulberry32: small, seeded, good enough for choices. */
function random(): number {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
}
const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T;
const chance = (p: number) => random() < p;

let database: TestDatabase;
let admin: Database;
const workers: string[] = [];
const runs: SqlRun[] = [];
const sessions: pg.Client[] = [];
const errors: string[] = [];
/** Effects in the outside world by operation key. */
const world = new Map<string, number>();
const idempotentKeys = new Set<string>();
let calm = false;
let over = false;

beforeAll(async () => {
  database = await createTestDatabase('storm');
  admin = openDatabase({ url: database.url, role: null, max: 10 });
  workers.push(await announceWorker(admin), await announceWorker(admin), await announceWorker(admin));
  for (let index = 0; index < RUNS; index += 1) {
    await startAnother();
  }
});

/** Four operations in all, so that runs get in each other's way. */
async function startAnother(): Promise<void> {
  const run = await pausedRun(
    admin,
    pick(workers),
    [
      { recovery: 'lookup', operation: `operation ${runs.length % 4}`, ...TIMES },
      { recovery: 'idempotent', ...TIMES, budget: 1_000 },
      { recovery: 'lookup', ...TIMES },
    ],
    `tenant ${runs.length % 2}`,
  );
  idempotentKeys.add(run.actions[1]?.id ?? '');
  runs.push(run);
}

afterAll(async () => {
  await Promise.all(sessions.map((session) => session.end()));
  await admin.close();
  await database.drop();
});

it(
  'no mixture of protocol steps deadlocks, doubles an effect, loses one, or strands a run',
  async () => {
    const actors = [
      worker,
      worker,
      worker,
      worker,
      reviewer,
      reviewer,
      reconciler,
      reconciler,
      sweeper,
      person,
      starter,
    ].map(act);
    await sleep(STORM_MS);
    calm = true;
    const end = Date.now() + CALM_MS;
    while ((await unfinished()).length > 0 && Date.now() < end) {
      await sleep(50);
    }
    over = true;
    await Promise.all(actors);
    const hint = `STORM_SEED=${SEED}`;
    expect(await unfinished(), hint).toEqual([]);
    expect(errors.slice(0, 5), hint).toEqual([]);
    expect(await chainFaults(admin), hint).toEqual([]);
    const seen = new Set<string>();
    for (const run of runs) {
      const after = await facts(admin, run);
      expect(after.kinds, hint).not.toContain('contradiction');
      for (const action of after.actions) {
        const expected = { succeeded: 1, not_executed: 0, failed: 0 }[action.state];
        seen.add(action.state);
        expect({ state: action.state, effects: world.get(action.id) ?? 0 }, hint).toEqual({
          state: action.state,
          effects: expected,
        });
      }
      assertDecidedBeforeSent(after.events, hint);
    }
    // The storm did blow: every end was reached by somebody, and many an attempt was not the first.
    const { rows } = await admin.pool.query(
      "select 1 from countersign.events where kind = 'action_dispatched' and (data ->> 'attempt')::integer > 1",
    );
    expect(rows.length, hint).toBeGreaterThan(5);
    expect(seen).toContain('succeeded');
    expect(seen).toContain('not_executed');
  },
  STORM_MS + CALM_MS + 10_000,
);

/** I1, read from the events: each dispatch is preceded by the approval of that action, with no withdrawal between. */
function assertDecidedBeforeSent(
  events: { kind: string; data: Record<string, unknown> }[],
  hint: string,
): void {
  const approved = new Set<unknown>();
  for (const { kind, data } of events) {
    if (kind === 'decision_approved') approved.add(data.action);
    if (['revoke_revoked', 'approval_expired', 'decision_rejected', 'approval_superseded'].includes(kind))
      approved.delete(data.action);
    if (kind === 'action_dispatched') expect([...approved], hint).toContain(data.action);
  }
}

async function unfinished(): Promise<string[]> {
  const { rows } = await admin.pool.query<{ status: string; reason: string | null }>(
    "select status, reason from countersign.runs where status not in ('completed', 'cancelled')",
  );
  return rows.map(({ status, reason }) => `${status} ${reason}`);
}

/** The youngest runs; in the calm all, for none may be forgotten. */
function active(): SqlRun[] {
  return calm ? runs : runs.slice(-2 * RUNS);
}

/** Repeats one actor's step in a session of its own until the end; every unexpected error is a finding. */
async function act(step: (session: pg.Client) => Promise<void>): Promise<void> {
  const session = await openSession(database.url, 'none', step.name);
  sessions.push(session);
  while (!over) {
    try {
      await step(session);
    } catch (error) {
      const cause = error instanceof Error ? error.cause : undefined;
      errors.push(`${step.name}: ${String(error)} ${cause instanceof Error ? cause.message : ''}`);
    }
    await sleep(random() * 5);
  }
}

async function worker(session: pg.Client): Promise<void> {
  const run = { ...pick(active()) };
  const { run: row } = await facts(admin, run);
  const wake = calm ? row.wake : row.wake - Number(chance(0.2));
  const ttlMs = calm ? 300 : Math.round(10 + random() * 60);
  const claimed = await claim(session, run, { wake, worker: pick(workers), ttlMs, maxAttempts: 1_000_000 });
  if (claimed.outcome !== 'claimed') return;
  let open = 0;
  for (const action of run.actions) {
    const intent = await intend(session, run, action);
    if (intent.outcome === 'fenced') return;
    if (intent.outcome === 'held') open += 1;
    if (intent.outcome === 'decide_again') {
      await askAgain(session, run, action);
      return;
    }
    if (intent.outcome !== 'dispatched') continue;
    const stays = await send(session, run, action, intent.attempt ?? 0);
    if (stays === 'dead') return;
    if (stays === 'suspended') open += 1;
  }
  const last = open > 0 ? await release(session, run) : await finish(session, run);
  if (last === null && calm) await release(session, run);
}

/** One attempt, as the world and a fallible worker would have it. */
async function send(
  session: pg.Client,
  run: SqlRun,
  action: SqlAction,
  attempt: number,
): Promise<'dead' | 'suspended' | 'settled'> {
  const how = calm ? 'ok' : pick(['ok', 'die', 'unknown', 'never_sent', 'slow', 'late'] as const);
  const known = { attempt, epoch: run.epoch, backoffMs: 5 };
  switch (how) {
    case 'ok':
      effect(action);
      await settle(session, run, action, { ...known, outcome: 'succeeded' });
      return 'settled';
    case 'slow': // frozen past its hold, but inside the send window
      await sleep(random() * WINDOW_MS);
      effect(action);
      await settle(session, run, action, { ...known, outcome: 'succeeded' });
      return 'settled';
    case 'late': // the answer comes long after somebody else has taken over
      effect(action);
      await sleep(50 + random() * 200);
      await settle(session, run, action, { ...known, outcome: 'succeeded' });
      return 'dead';
    case 'never_sent':
      await settle(session, run, action, { ...known, outcome: 'never_sent' });
      return 'suspended';
    case 'unknown':
      maybeLater(action);
      await settle(session, run, action, { ...known, outcome: 'unknown' });
      return 'suspended';
    case 'die':
      maybeLater(action);
      return 'dead';
  }
}

function effect({ id }: SqlAction): void {
  const before = world.get(id) ?? 0;
  world.set(id, idempotentKeys.has(id) ? 1 : before + 1);
}

function maybeLater(action: SqlAction): void {
  if (chance(0.5)) setTimeout(() => effect(action), random() * WINDOW_MS);
}

async function reviewer(session: pg.Client): Promise<void> {
  const run = pick(active());
  const action = pick(run.actions);
  if (!calm && chance(0.15)) {
    await revoke(session, run, action);
    return;
  }
  const verdict = calm || chance(0.85) ? 'approve' : 'reject';
  await decideBy(session, run, action, verdict, pick(['alice', 'bob', 'carol']));
}

async function sweeper(session: pg.Client): Promise<void> {
  const due = await callFunction<{ tenant: string; run_id: string }>(session, 'runs_to_sweep', [20, 20]);
  const again = await callFunction<{ tenant: string; run_id: string }>(session, 'runs_to_repeat', [20]);
  for (const { run_id } of [...due, ...again]) {
    const run = runs.find(({ id }) => id === run_id);
    if (run !== undefined) await sweep(session, run, 20);
  }
}

async function reconciler(session: pg.Client): Promise<void> {
  const due = await callFunction<{ tenant: string; run_id: string; action_id: string }>(
    session,
    'claim_actions_to_reconcile',
    [5, 20, [SQL_WORKFLOW]],
  );
  for (const { tenant, run_id, action_id } of due) {
    const run = runs.find(({ id }) => id === run_id);
    const action = run?.actions.find(({ id }) => id === action_id);
    const [loaded] = await callFunction<{ attempt: number; asked_at: Date }>(
      session,
      'load_action_to_reconcile',
      [tenant, run_id, action_id],
    );
    if (run === undefined || action === undefined || loaded === undefined) continue;
    const found = (world.get(action.id) ?? 0) > 0;
    // A reconciler may fall asleep between the answer and its record.
    if (!calm && chance(0.3)) await sleep(random() * 600);
    await settle(session, run, action, {
      attempt: loaded.attempt,
      outcome: found ? 'succeeded' : 'absent',
      source: 'lookup',
      askedAt: loaded.asked_at,
      backoffMs: 20,
    });
  }
}

/** Keeps the storm fed. */
async function starter(): Promise<void> {
  await sleep(20);
  if (!calm && (await unfinished()).length < RUNS) await startAnother();
}

async function person(session: pg.Client): Promise<void> {
  await sleep(100);
  if (!calm && chance(0.04)) await cancel(session, pick(active()));
  for (const { tenant, id, attempt } of (await session.query(UNASKABLE)).rows) {
    await callFunction(session, 'resolve_action', [
      tenant,
      id,
      attempt,
      (world.get(id) ?? 0) > 0 ? 'succeeded' : 'absent',
      'olga',
      randomUUID(),
      Buffer.alloc(1),
      Buffer.alloc(1),
    ]);
  }
}

/** An attempt that nobody sends again, because its run is being cancelled: it waits for somebody who looks. */
const UNASKABLE = `
  select tenant, id, attempt from countersign.actions
  where state = 'outcome_unknown' and reconcile_after is null and recovery = 'idempotent'`;
