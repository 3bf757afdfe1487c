/** A relay process is killed around every one of its steps: an announcement may go out twice, and never not at all. */
import { describe, it, vi } from 'vitest';
import { ENOUGH_MS, useCrashStage } from '../support/crash-stage.ts';
import { noPrivateRedis } from '../support/private-redis.ts';
import { until } from '../support/sessions.ts';

vi.setConfig({ testTimeout: 240_000 });
const withRun = useCrashStage();

describe.skipIf(noPrivateRedis)('a relay is killed', () => {
  it.each(['after claim_outbox', 'before mark_outbox_sent', 'after mark_outbox_sent'])(
    '%s: the announcement is published again or was published, and the effect happens once',
    (at) =>
      withRun('lookup', async ({ fleet, run, relay, startVictim, survivor, expectOneEffect }) => {
        await survivor();
        const runId = await run();
        await fleet.until(runId, 'awaiting_approval', ENOUGH_MS);
        await relay.stop();
        await fleet.decideAll(runId, 'approve');
        const victim = await startVictim({ at }, 'relay');
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
        await expectOneEffect(runId);
      }),
  );
});
