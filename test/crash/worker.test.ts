/**
 * A worker process is killed, or frozen and thawed, in front of and behind every durable or external operation of a
 * run; another one carries on. Whatever the place, the provider has seen the effect once, and the run ends by itself
 * unless only a person can know.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { resolveAction } from '../../src/actions/index.ts';
import type { Running } from '../../src/processes/index.ts';
import { explain } from '../../src/runs/index.ts';
import { fourKinds, type Kind, PAYMENTS_TABLE } from '../fixtures/four-kinds.ts';
import type { WorkerMainConfig } from '../fixtures/worker-main.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { type PrivateRedis, startPrivateRedis } from '../support/private-redis.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { chainFaults, until } from '../support/sql-run.ts';
import { startWorkerProcess, type WorkerProcess } from '../support/worker-process.ts';

const noRedis = inject('redisSkipReason') !== null;
const TTL_MS = 1_000;
const TIMES = { sendWithin: '1s', callTimeout: '1s', settlesWithin: '200ms' } as const;
const ENOUGH_MS = 60_000;
/** Cases at once: each is a process of its own and half a fleet. */
const AT_ONCE = 3;

let provider: Provider;
let redis: PrivateRedis;
let cases = 0;
const places: Promise<void>[] = Array.from({ length: AT_ONCE }, () => Promise.resolve());

beforeAll(async () => {
  provider = await startProvider();
  redis = await startPrivateRedis();
  // What looks up or asks a person may not lean on the provider's own memory of keys.
  await provider.client.setMode('pay-lookup', { dedupe: false });
  await provider.client.setMode('pay-manual', { dedupe: false });
});

afterAll(async () => {
  await redis?.close();
  await provider?.stop();
});

vi.setConfig({ testTimeout: 240_000 });

describe.skipIf(noRedis)('a worker is killed', () => {
  it.concurrent.each([
    ['lookup', 'after claim_run'],
    ['lookup', 'before journal_response'],
    ['lookup', 'after journal_response'],
    ['lookup', 'before pause_run'],
    ['lookup', 'after pause_run'],
  ] as const)('(%s) %s: the run still pauses for one approval, and the effect happens once', (kind, at) =>
    withRun(kind, async ({ fleet, run, payee, startVictim }) => {
      const victim = await startVictim({ at });
      const runId = await run();
      await victim.halted();
      await victim.kill();
      await survivor(fleet);
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      expect(await effectsFor(fleet, kind, payee)).toBe(0);
      expect(await fleet.decideAll(runId, 'approve')).toBe(1);
      await fleet.until(runId, 'completed', ENOUGH_MS);
      await expectOneEffect(fleet, kind, runId, payee);
    }),
  );

  it.concurrent.each([
    ['lookup', 'after claim_run', 2],
    ['lookup', 'before intend_action', 1],
    ['lookup', 'after intend_action', 1],
    ['lookup', 'before call', 1],
    ['lookup', 'after call', 1],
    ['lookup', 'before settle_action', 1],
    ['lookup', 'after settle_action', 1],
    ['lookup', 'model 1', 1],
    ['lookup', 'before finish_run', 1],
    ['lookup', 'after finish_run', 1],
    ['idempotent', 'after intend_action', 1],
    ['idempotent', 'after call', 1],
    ['idempotent', 'after settle_action', 1],
    ['manual', 'after settle_action', 1],
    ['transactional', 'before call', 1],
    ['transactional', 'after call', 1],
    ['transactional', 'after settle_action', 1],
    ['transactional', 'before finish_run', 1],
  ] as const)(
    '(%s) %s, once approved: the effect happens once and the run completes by itself',
    (kind, at, nth) =>
      withRun(kind, async ({ fleet, run, payee, startVictim }) => {
        const victim = await startVictim({ at, nth });
        const runId = await run();
        await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
        await fleet.decideAll(runId, 'approve');
        await victim.halted();
        await victim.kill();
        await survivor(fleet);
        await fleet.until(runId, 'completed', ENOUGH_MS);
        await expectOneEffect(fleet, kind, runId, payee);
        expect(await fleet.output(runId)).toContain('told: ');
      }),
  );

  it.concurrent.each([
    ['after intend_action', 0, 'not_executed', 1],
    ['after call', 1, 'succeeded', 1],
    ['after call', 1, 'abandoned', 1],
  ] as const)(
    '(manual) %s: the outcome stays unknown, is explained as such, and waits for a person (%i effect, %s)',
    (at, effects, verdict, finally_) =>
      withRun('manual', async ({ fleet, run, payee, startVictim }) => {
        const victim = await startVictim({ at });
        const runId = await run();
        await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
        await fleet.decideAll(runId, 'approve');
        await victim.halted();
        await victim.kill();
        await survivor(fleet);
        await fleet.until(runId, 'awaiting_reconciliation', ENOUGH_MS);
        await until(
          async () => (await actionOf(fleet, runId)).state === 'outcome_unknown',
          'the attempt to be unknown',
        );
        await sleep(1_500);
        expect(await effectsFor(fleet, 'manual', payee)).toBe(effects);
        const explained = await explain(fleet.api, { tenant: 'acme', runId });
        expect(explained.actions).toMatchObject([
          { happened: 'unknown', state: 'outcome_unknown', attempt: 1 },
        ]);
        expect(explained.next.join(' ')).toContain('a named person');

        const { id } = await actionOf(fleet, runId);
        await resolveAction(fleet.api, fleet.keys, {
          tenant: 'acme',
          actionId: id,
          verdict,
          subject: 'olga',
          evidence: 'looked at the provider’s console',
        });
        await fleet.until(runId, 'completed', ENOUGH_MS);
        expect(await effectsFor(fleet, 'manual', payee)).toBe(finally_);
      }),
  );

  it('while the provider has committed and its answer is on the way: found by look-up, told once', () =>
    withRun('lookup', async ({ fleet, run, payee, startVictim }) => {
      const victim = await startVictim(null);
      const runId = await run();
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      const gate = `answer-of-${payee}`;
      await provider.client.holdGate(gate);
      await provider.client.fault({
        kind: 'pay-lookup',
        fault: { type: 'wait_for_gate', gate, when: 'after_commit' },
      });
      await fleet.decideAll(runId, 'approve');
      await until(async () => (await effectsFor(fleet, 'lookup', payee)) === 1, 'the provider to commit');
      await victim.kill();
      await provider.client.openGate(gate);
      await survivor(fleet);
      await fleet.until(runId, 'completed', ENOUGH_MS);
      await expectOneEffect(fleet, 'lookup', runId, payee);
      const receipts = await fleet.rows<{ source: string }>(
        'select source from countersign.receipts where run_id = $1 and outcome = $2',
        [runId, 'succeeded'],
      );
      expect(receipts).toEqual([{ source: 'lookup' }]);
    }));

  it(
    'five times over at different places: one effect, and no dead letter while there is progress',
    () =>
      withRun('lookup', async ({ fleet, run, payee, startVictim }) => {
        let runId = '';
        for (const at of [
          'after claim_run',
          'after journal_response',
          'before pause_run',
          'after pause_run',
        ]) {
          const victim = await startVictim({ at });
          runId ||= await run();
          await victim.halted();
          await victim.kill();
        }
        await fleet.decideAll(runId, 'approve');
        for (const at of ['after intend_action', 'before settle_action', 'model 1']) {
          const victim = await startVictim({ at });
          await victim.halted(ENOUGH_MS);
          await victim.kill();
        }
        await survivor(fleet);
        await fleet.until(runId, 'completed', ENOUGH_MS);
        await expectOneEffect(fleet, 'lookup', runId, payee);
      }),
    90_000,
  );
});

describe.skipIf(noRedis)('a run that kills its workers', () => {
  it.concurrent('is given up when its attempts are spent, as stalled, with its decision still good for a replay', () =>
    withRun('lookup', async ({ fleet, run, payee, startVictim }) => {
      const first = await startVictim(null);
      const runId = await run();
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      await first.kill();
      const [second, third] = [
        await startVictim({ at: 'before intend_action' }),
        () => startVictim({ at: 'before intend_action' }),
      ];
      await fleet.decideAll(runId, 'approve');
      await second.halted();
      await second.kill();
      const another = await third();
      await another.halted();
      await another.kill();
      await fleet.worker({ ttlMs: TTL_MS, maxAttempts: 2 });
      await fleet.until(runId, 'dead_lettered', ENOUGH_MS);
      expect(
        await fleet.rows('select class, round from countersign.dead_letters where run_id = $1', [runId]),
      ).toEqual([{ class: 'stalled', round: 1 }]);
      expect(await effectsFor(fleet, 'lookup', payee)).toBe(0);
      expect(await fleet.rows('select state from countersign.approvals where run_id = $1', [runId])).toEqual([
        { state: 'approved' },
      ]);
    }));
});

describe.skipIf(noRedis)('a worker is frozen past its hold and thawed', () => {
  it.concurrent.each([
    ['lookup', 'before claim_run', 2],
    ['lookup', 'before intend_action', 1],
    ['lookup', 'after intend_action', 1],
    ['lookup', 'before call', 1],
    ['lookup', 'before settle_action', 1],
    ['lookup', 'before finish_run', 1],
    ['idempotent', 'after intend_action', 1],
    ['idempotent', 'before settle_action', 1],
    ['transactional', 'after call', 1],
  ] as const)(
    '(%s) %s: its successor finishes, and what the zombie writes changes no row of the run',
    (kind, at, nth) =>
      withRun(kind, async ({ fleet, run, payee, startVictim }) => {
        const zombie = await startVictim({ at, nth });
        const runId = await run();
        await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
        await fleet.decideAll(runId, 'approve');
        await zombie.halted();
        await zombie.kill('SIGSTOP');
        if (kind === 'transactional') {
          // Its open transaction holds the run's row; the server ends it when the client is gone for good or timed out.
          await fleet.rows(
            'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and state = $1',
            ['idle in transaction'],
          );
        }
        await survivor(fleet);
        await fleet.until(runId, 'completed', ENOUGH_MS);
        const before = await runRows(fleet, runId);
        zombie.go();
        await zombie.kill('SIGCONT');
        await sleep(1_500);
        expect(await runRows(fleet, runId)).toEqual(before);
        expect(zombie.exit()).toBeNull();
        await expectOneEffect(fleet, kind, runId, payee);
        await zombie.stop();
      }),
  );

  it('before it pauses: one checkpoint, one approval, one decision', () =>
    withRun('lookup', async ({ fleet, run, payee, startVictim }) => {
      const zombie = await startVictim({ at: 'before pause_run' });
      const runId = await run();
      await zombie.halted();
      await zombie.kill('SIGSTOP');
      await survivor(fleet);
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      const before = await runRows(fleet, runId);
      zombie.go();
      await zombie.kill('SIGCONT');
      await sleep(1_000);
      expect(await runRows(fleet, runId)).toEqual(before);
      expect(await fleet.decideAll(runId, 'approve')).toBe(1);
      await fleet.until(runId, 'completed', ENOUGH_MS);
      await expectOneEffect(fleet, 'lookup', runId, payee);
      await zombie.stop();
    }));

  it('S10: a worker whose event loop is blocked inside a tool loses its run, and keeps its receipt', () =>
    withRun('lookup', async ({ fleet, run, payee, startVictim }) => {
      const blocked = await startVictim({ at: 'after call', block: 3_500 });
      const runId = await run();
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      await fleet.decideAll(runId, 'approve');
      await blocked.halted();
      await survivor(fleet);
      await fleet.until(runId, 'completed', ENOUGH_MS);
      const before = await runRows(fleet, runId);
      await sleep(2_000);
      expect(await runRows(fleet, runId)).toEqual(before);
      expect(blocked.exit()).toBeNull();
      await expectOneEffect(fleet, 'lookup', runId, payee);
      expect(await fleet.rows('select 1 from countersign.dead_letters')).toEqual([]);
      await blocked.stop();
    }));
});

describe.skipIf(noRedis)('a relay is killed', () => {
  it.each(['after claim_outbox', 'before mark_outbox_sent', 'after mark_outbox_sent'])(
    '%s: the announcement is published again or was published, and the effect happens once',
    (at) =>
      withRun('lookup', async ({ fleet, run, payee, relay }) => {
        await survivor(fleet);
        const runId = await run();
        await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
        await relay.stop();
        await fleet.decideAll(runId, 'approve');
        const victim = await startWorkerProcess({ ...configOf(fleet), role: 'relay', halt: { at } });
        await victim.halted();
        await victim.kill();
        // A dead relay's claim lapses by itself after 15 s; this is only the waiting.
        await fleet.rows(
          "update countersign.outbox set claimed_until = clock_timestamp() - interval '1 s' where claimed_until is not null",
        );
        await fleet.relay();
        await fleet.until(runId, 'completed', ENOUGH_MS);
        await until(
          async () =>
            (await fleet.rows('select 1 from countersign.outbox where sent_at is null')).length === 0,
          'every row to be sent',
        );
        await expectOneEffect(fleet, 'lookup', runId, payee);
      }),
  );
});

type Stage = {
  fleet: Fleet;
  payee: string;
  relay: Running;
  /** Starts the run. */
  run(): Promise<string>;
  startVictim(halt: WorkerMainConfig['halt'] | null): Promise<WorkerProcess>;
};

/** Gives the test a fleet with a relay and a reconciler, no worker yet, and a run to start on it. */
function withRun(kind: Kind, work: (stage: Stage) => Promise<void>): Promise<void> {
  cases += 1;
  const number = cases;
  const before = places[number % AT_ONCE];
  const mine = (before ?? Promise.resolve()).then(() => onStage(number, kind, work));
  places[number % AT_ONCE] = mine.catch(() => undefined);
  return mine;
}

async function onStage(number: number, kind: Kind, work: (stage: Stage) => Promise<void>): Promise<void> {
  const payee = `payee-${number}`;
  const fleet = await createFleet(workflows(), {
    name: `crash ${kind}`,
    backend: 'redis',
    redisUrl: redis.url(number % 64),
  });
  const victims: WorkerProcess[] = [];
  try {
    if (kind === 'transactional') await fleet.rows(PAYMENTS_TABLE);
    const relay = await fleet.relay();
    await fleet.reconciler({ patienceMs: 300 });
    await work({
      fleet,
      payee,
      relay,
      run: () => fleet.start({ workflow: `pay-${kind}`, input: `${payee} 10` }),
      async startVictim(halt) {
        const config = { ...configOf(fleet), role: 'worker' as const };
        const started = await startWorkerProcess(halt ? { ...config, halt } : config);
        victims.push(started);
        return started;
      },
    });
    expect(await chainFaults(fleet.admin)).toEqual([]);
  } finally {
    await Promise.all(victims.map((victim) => victim.kill()));
    await fleet.close();
  }
}

const workflows = () => fourKinds({ providerUrl: provider.url, ...TIMES });

function configOf(fleet: Fleet): Omit<WorkerMainConfig, 'role'> {
  return {
    databaseUrl: fleet.url,
    redisUrl: fleet.redisUrl,
    keys: fleet.keySpec,
    workflows: { providerUrl: provider.url, ...TIMES },
    ttlMs: TTL_MS,
  };
}

const survivor = (fleet: Fleet) => fleet.worker({ ttlMs: TTL_MS });

async function actionOf(fleet: Fleet, runId: string) {
  const [row] = await fleet.rows<{ id: string; state: string; attempt: number }>(
    'select id, state, attempt from countersign.actions where run_id = $1',
    [runId],
  );
  if (row === undefined) throw new Error('the run has no action');
  return row;
}

/** Everything that a write to the run would change; evidence (receipts, and the events that tell of it) is apart. */
async function runRows(fleet: Fleet, runId: string) {
  return {
    // A sweep looks at waiting runs, and says so.
    run: await fleet.rows("select to_jsonb(r) - 'looked_at' as row from countersign.runs r where id = $1", [
      runId,
    ]),
    checkpoints: await fleet.rows(
      'select number, epoch from countersign.checkpoints where run_id = $1 order by number',
      [runId],
    ),
    approvals: await fleet.rows('select id, state from countersign.approvals where run_id = $1', [runId]),
    actions: await fleet.rows('select id, state, attempt from countersign.actions where run_id = $1', [
      runId,
    ]),
    calls: await fleet.rows(
      'select segment, path, n, epoch from countersign.model_calls where run_id = $1 order by 1, 2, 3',
      [runId],
    ),
  };
}

async function effectsFor(fleet: Fleet, kind: Kind, payee: string): Promise<number> {
  if (kind === 'transactional') {
    return (await fleet.rows('select 1 from public.payments where payee = $1', [payee])).length;
  }
  return (await provider.client.findBy(`pay-${kind}`, 'to', payee)).effects.length;
}

async function expectOneEffect(fleet: Fleet, kind: Kind, runId: string, payee: string): Promise<void> {
  expect(await effectsFor(fleet, kind, payee)).toBe(1);
  expect((await actionOf(fleet, runId)).state).toBe('succeeded');
  const events = await fleet.rows<{ kind: string }>('select kind from countersign.events where run_id = $1', [
    runId,
  ]);
  const kinds = events.map((event) => event.kind);
  expect(kinds.filter((name) => name === 'run_completed')).toHaveLength(1);
  expect(kinds).not.toContain('contradiction');
  expect(kinds).not.toContain('run_dead_lettered');
}
