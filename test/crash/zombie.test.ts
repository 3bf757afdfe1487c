/**
 * A worker process is frozen past its hold (SIGSTOP, a blocked event loop), another one takes its run over, and then it
 * comes back and goes on where it stood (S10, S11). What it holds as evidence is kept; what it writes to the run is not.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { ENOUGH_MS, useCrashStage } from '../support/crash-stage.ts';
import { noPrivateRedis } from '../support/private-redis.ts';

vi.setConfig({ testTimeout: 240_000 });
const withRun = useCrashStage();

describe.skipIf(noPrivateRedis)('a worker is frozen past its hold and thawed', () => {
  it.concurrent.each([
    ['lookup', 'before claim_runs', 2],
    ['lookup', 'before intend_actions', 1],
    ['lookup', 'after intend_actions', 1],
    ['lookup', 'before call', 1],
    ['lookup', 'before settle_actions', 1],
    ['lookup', 'before finish_runs', 1],
    ['idempotent', 'after intend_actions', 1],
    ['idempotent', 'before settle_actions', 1],
    ['transactional', 'after call', 1],
  ] as const)(
    '(%s) %s: its successor finishes, and what the zombie writes changes no row of the run',
    (kind, at, nth) =>
      withRun(kind, async ({ fleet, run, startVictim, survivor, runRows, expectOneEffect }) => {
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
        await survivor();
        await fleet.until(runId, 'completed', ENOUGH_MS);
        const before = await runRows(runId);
        zombie.go();
        await zombie.kill('SIGCONT');
        await sleep(1_500);
        expect(await runRows(runId)).toEqual(before);
        expect(zombie.exit()).toBeNull();
        await expectOneEffect(runId);
        await zombie.stop();
      }),
  );

  it('before it pauses: one checkpoint, one approval, one decision', () =>
    withRun('lookup', async ({ fleet, run, startVictim, survivor, runRows, expectOneEffect }) => {
      const zombie = await startVictim({ at: 'before pause_runs' });
      const runId = await run();
      await zombie.halted();
      await zombie.kill('SIGSTOP');
      await survivor();
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      const before = await runRows(runId);
      zombie.go();
      await zombie.kill('SIGCONT');
      await sleep(1_000);
      expect(await runRows(runId)).toEqual(before);
      expect(await fleet.decideAll(runId, 'approve')).toBe(1);
      await fleet.until(runId, 'completed', ENOUGH_MS);
      await expectOneEffect(runId);
      await zombie.stop();
    }));

  it('S10: a worker whose event loop is blocked inside a tool loses its run, and keeps its receipt', () =>
    withRun('lookup', async ({ fleet, run, startVictim, survivor, runRows, expectOneEffect }) => {
      const blocked = await startVictim({ at: 'after call', block: 3_500 });
      const runId = await run();
      await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
      await fleet.decideAll(runId, 'approve');
      await blocked.halted();
      await survivor();
      await fleet.until(runId, 'completed', ENOUGH_MS);
      const before = await runRows(runId);
      await sleep(2_000);
      expect(await runRows(runId)).toEqual(before);
      expect(blocked.exit()).toBeNull();
      await expectOneEffect(runId);
      expect(await fleet.rows('select 1 from countersign.dead_letters')).toEqual([]);
      await blocked.stop();
    }));
});
