import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { type Line, openLine } from '../support/line.ts';
import { effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

let provider: Provider;
let fleet: Fleet | undefined;
let line: Line | undefined;

beforeAll(async () => {
  provider = await startProvider();
});
beforeEach(() => provider.client.reset());
afterEach(async () => {
  await fleet?.close();
  await line?.close();
  fleet = undefined;
  line = undefined;
});
afterAll(() => provider?.stop());

const TTL_MS = 3_000;

/** A run whose model is asked once per claim, each time with Postgres out of the worker's reach for `outageMs`. */
async function cutOff(outages: number, outageMs: number) {
  let left = outages;
  const made = await createFleet(
    [
      crew(
        () => named('payer', { tools: [payAction(provider, { approval: null })] }),
        async (_agent, turn) => {
          if (turn === 0 && left > 0) {
            left -= 1;
            line?.cut();
            const mending = sleep(outageMs).then(() => line?.mend());
            // Long: the hold runs out while the model still thinks. Short: its answer finds nobody to store it.
            if (outageMs > TTL_MS) await mending;
          }
          return turn === 0 ? [{ name: 'pay', arguments: { to: 'a', amount: 1 } }] : 'done';
        },
      ),
    ],
    { name: 'outage', backend: 'redis' },
  );
  fleet = made;
  line = await openLine(made.url);
  await made.relay();
  await made.worker({ databaseUrl: line.url, maxAttempts: 2, ttlMs: TTL_MS });
  return { made, run: await made.start({ workflow: 'agents' }) };
}

describe('an outage of Postgres', () => {
  it('costs a run no attempt and no wait for its hold: more outages than attempts, and it completes', async () => {
    const { made, run } = await cutOff(4, 250);
    await made.until(run, 'completed', 3 * TTL_MS);
    expect(await effects(provider)).toEqual({ a: 1 });
    const claims = await made.rows<{ taken_over: boolean; attempt: number }>(
      "select (data->>'taken_over')::boolean as taken_over, (data->>'attempt')::integer as attempt from countersign.events where kind = 'run_claimed' order by n",
    );
    expect(claims).toEqual(Array(5).fill({ taken_over: false, attempt: 1 }));
  });

  it('longer than a hold: who could not renew it gives it back, if nobody has taken it over', async () => {
    const { made, run } = await cutOff(2, TTL_MS + 500);
    // No sweep is there to announce it, and no other worker to take it over.
    await made.until(run, 'completed', 6 * TTL_MS);
    expect(await effects(provider)).toEqual({ a: 1 });
  });

  it('caused by the run itself, each time it is carried, ends in a dead letter all the same', async () => {
    const { made, run } = await cutOff(1_000, 20);
    await made.until(run, 'dead_lettered', 25_000);
    expect(await effects(provider)).toEqual({});
  });
});
