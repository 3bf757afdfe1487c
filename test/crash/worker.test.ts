/**
 * A worker process is killed in front of and behind every durable or external operation of a run, and another one
 * carries on. Whatever the place, the provider has seen the effect once, and the run ends by itself unless only a
 * person can know.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { resolveAction } from '../../src/actions/index.ts';
import { explain } from '../../src/runs/index.ts';
import { ENOUGH_MS, useCrashStage } from '../support/crash-stage.ts';
import { noPrivateRedis } from '../support/private-redis.ts';
import { until } from '../support/sessions.ts';

vi.setConfig({ testTimeout: 240_000 });
const withRun = useCrashStage();

describe.skipIf(noPrivateRedis)('a worker is killed', () => {
  it.concurrent.each([
    ['lookup', 'after claim_runs'],
    ['lookup', 'before journal_responses'],
    ['lookup', 'after journal_responses'],
    ['lookup', 'before pause_runs'],
    ['lookup', 'after pause_runs'],
  ] as const)('(%s) %s: the run still pauses for one approval, and the effect happens once', (kind, at) =>
    withRun(kind, async ({ fleet, run, startVictim, survivor, effects, expectOneEffect }) => {
      const victim = await startVictim({ at });
      const runId = await run();
      await victim.halted();
      await victim.kill();
      await survivor();
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      expect(await effects()).toBe(0);
      expect(await fleet.decideAll(runId, 'approve')).toBe(1);
      await fleet.until(runId, 'completed', ENOUGH_MS);
      await expectOneEffect(runId);
    }),
  );

  it.concurrent.each([
    ['lookup', 'after claim_runs', 2],
    ['lookup', 'before intend_actions', 1],
    ['lookup', 'after intend_actions', 1],
    ['lookup', 'after call', 1],
    ['lookup', 'before settle_actions', 1],
    ['lookup', 'after settle_actions', 1],
    ['lookup', 'model 1', 1],
    ['lookup', 'before finish_runs', 1],
    ['lookup', 'after finish_runs', 1],
    ['idempotent', 'after intend_actions', 1],
    ['idempotent', 'after call', 1],
    ['manual', 'after settle_actions', 1],
    ['transactional', 'before call', 1],
    ['transactional', 'after call', 1],
    ['transactional', 'before finish_runs', 1],
  ] as const)(
    '(%s) %s, once approved: the effect happens once and the run completes by itself',
    (kind, at, nth) =>
      withRun(kind, async ({ fleet, run, startVictim, survivor, expectOneEffect }) => {
        const victim = await startVictim({ at, nth });
        const runId = await run();
        await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
        await fleet.decideAll(runId, 'approve');
        await victim.halted();
        await victim.kill();
        await survivor();
        await fleet.until(runId, 'completed', ENOUGH_MS);
        await expectOneEffect(runId);
        expect(await fleet.output(runId)).toContain('told: ');
      }),
  );

  it.concurrent.each([
    ['after intend_actions', 0, 'not_executed', 1],
    ['after call', 1, 'succeeded', 1],
    ['after call', 1, 'abandoned', 1],
  ] as const)(
    '(manual) %s: the outcome stays unknown, is explained as such, and waits for a person (%i effect, %s)',
    (at, before, verdict, after) =>
      withRun('manual', async ({ fleet, run, startVictim, survivor, effects, actionOf }) => {
        const victim = await startVictim({ at });
        const runId = await run();
        await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
        await fleet.decideAll(runId, 'approve');
        await victim.halted();
        await victim.kill();
        await survivor();
        await fleet.until(runId, 'awaiting_reconciliation', ENOUGH_MS);
        await until(
          async () => (await actionOf(runId)).state === 'outcome_unknown',
          'the attempt to be unknown',
        );
        await sleep(1_500);
        expect(await effects()).toBe(before);
        const explained = await explain(fleet.api, { tenant: 'acme', runId });
        expect(explained.actions).toMatchObject([
          { happened: 'unknown', state: 'outcome_unknown', attempt: 1 },
        ]);
        expect(explained.next.join(' ')).toContain('a named person');

        const { id } = await actionOf(runId);
        await resolveAction(fleet.api, fleet.keys, {
          tenant: 'acme',
          actionId: id,
          verdict,
          subject: 'olga',
          evidence: 'looked at the provider’s console',
        });
        await fleet.until(runId, 'completed', ENOUGH_MS);
        expect(await effects()).toBe(after);
      }),
  );

  it('while the provider has committed and its answer is on the way: found by look-up, told once', () =>
    withRun(
      'lookup',
      async ({ fleet, provider, run, payee, startVictim, survivor, effects, expectOneEffect }) => {
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
        await until(async () => (await effects()) === 1, 'the provider to commit');
        await victim.kill();
        await provider.client.openGate(gate);
        await survivor();
        await fleet.until(runId, 'completed', ENOUGH_MS);
        await expectOneEffect(runId);
        const receipts = await fleet.rows<{ source: string }>(
          'select source from countersign.receipts where run_id = $1 and outcome = $2',
          [runId, 'succeeded'],
        );
        expect(receipts).toEqual([{ source: 'lookup' }]);
      },
    ));

  it(
    'five times over at different places: one effect, and no dead letter while there is progress',
    () =>
      withRun('lookup', async ({ fleet, run, startVictim, survivor, expectOneEffect }) => {
        let runId = '';
        for (const at of [
          'after claim_runs',
          'after journal_responses',
          'before pause_runs',
          'after pause_runs',
        ]) {
          const victim = await startVictim({ at });
          runId ||= await run();
          await victim.halted();
          await victim.kill();
        }
        await fleet.decideAll(runId, 'approve');
        for (const at of ['after intend_actions', 'before settle_actions', 'model 1']) {
          const victim = await startVictim({ at });
          await victim.halted(ENOUGH_MS);
          await victim.kill();
        }
        await survivor();
        await fleet.until(runId, 'completed', ENOUGH_MS);
        await expectOneEffect(runId);
      }),
    90_000,
  );
});

describe.skipIf(noPrivateRedis)('a run that kills its workers', () => {
  it.concurrent('is given up when its attempts are spent, as stalled, with its decision still good for a replay', () =>
    withRun('lookup', async ({ fleet, run, startVictim, survivor, effects }) => {
      const first = await startVictim(null);
      const runId = await run();
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      await first.kill();
      const [second, third] = [
        await startVictim({ at: 'before intend_actions' }),
        () => startVictim({ at: 'before intend_actions' }),
      ];
      await fleet.decideAll(runId, 'approve');
      await second.halted();
      await second.kill();
      const another = await third();
      await another.halted();
      await another.kill();
      await survivor({ maxAttempts: 2 });
      await fleet.until(runId, 'dead_lettered', ENOUGH_MS);
      expect(
        await fleet.rows('select class, round from countersign.dead_letters where run_id = $1', [runId]),
      ).toEqual([{ class: 'stalled', round: 1 }]);
      expect(await effects()).toBe(0);
      expect(await fleet.rows('select state from countersign.approvals where run_id = $1', [runId])).toEqual([
        { state: 'approved' },
      ]);
    }));
});
