import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { showRun } from '../../src/runs/index.ts';
import { crew, modelOf, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

let provider: Provider;
let fleet: Fleet | undefined;

beforeAll(async () => {
  provider = await startProvider();
});
beforeEach(() => provider.client.reset());
afterEach(async () => {
  await fleet?.close();
  fleet = undefined;
});
afterAll(() => provider?.stop());

/** Requests and tokens, of which each answer of the scripted model has 15. */
async function costOf({ api, keys }: Fleet, runId: string) {
  const { usage, wasted } = await showRun(api, keys, { tenant: 'acme', runId });
  return {
    usage: [usage.requests, usage.totalTokens],
    wasted: [wasted.requests, wasted.totalTokens],
  };
}

describe('what a run’s model calls cost', () => {
  it('is the sum over its pauses and its workers, each answer once; calls that failed are counted apart', async () => {
    let failures = 2;
    const model = modelOf((_agent, turn) => {
      if (turn === 1 && failures > 0) {
        failures -= 1;
        throw new Error('503');
      }
      return turn < 2 ? [{ name: 'pay', arguments: { to: 'ab'[turn], amount: 1 } }] : 'done';
    });
    fleet = await createFleet([crew(() => named('payer', { tools: [payAction(provider)] }), model)], {
      name: 'usage',
      backend: 'redis',
    });
    await fleet.relay();
    let worker = await fleet.worker();
    const run = await fleet.start({ workflow: 'agents' });
    for (const spent of [1, 2]) {
      await fleet.until(run, 'awaiting_approval');
      expect((await costOf(fleet, run)).usage).toEqual([spent, spent * 15]);
      await worker.stop();
      worker = await fleet.worker();
      await fleet.decideAll(run, 'approve');
      await expect.poll(async () => Object.keys(await effects(provider))).toHaveLength(spent);
    }
    await fleet.until(run, 'completed');
    expect(await costOf(fleet, run)).toEqual({ usage: [3, 45], wasted: [2, 0] });
    expect(model.calls).toBe(5);
  });

  it('counts as wasted what a worker paid for that had been overtaken, though it may write nothing of the run', async () => {
    let release: () => void = () => undefined;
    const asked = new Promise<void>((resolve) => {
      release = resolve;
    });
    let calls = 0;
    const model = modelOf(async () => {
      calls += 1;
      if (calls === 1) await asked;
      return 'done';
    });
    // No leases: the take-over needs the hold to run out, and nobody's advice.
    fleet = await createFleet([crew(() => named('speaker'), model)], { name: 'usage', backend: 'embedded' });
    const slow = await fleet.worker({ concurrency: 1, ttlMs: 60_000 });
    await fleet.relay();
    const run = await fleet.start({ workflow: 'agents' });
    await expect.poll(() => calls).toBe(1);
    await fleet.rows(
      "update countersign.runs set held_until = clock_timestamp() - interval '1 second', looked_at = clock_timestamp() - interval '1 hour'",
    );
    await fleet.worker();
    await fleet.reconciler({ patienceMs: 100 });
    await fleet.until(run, 'completed');
    expect(await costOf(fleet, run)).toEqual({ usage: [1, 15], wasted: [0, 0] });
    release();
    await expect.poll(() => slow.counts.lost).toBe(1);
    await expect.poll(() => costOf(fleet as Fleet, run)).toEqual({ usage: [1, 15], wasted: [1, 15] });
  });
});
