/** The relay is told of what was committed; a poll a minute is not what carries a run here. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

let provider: Provider;
let fleet: Fleet;
let amount = 0;

beforeAll(async () => {
  provider = await startProvider();
  const pay = payAction(provider);
  fleet = await createFleet(
    [
      crew(
        () => named('payer', { tools: [pay] }),
        (_agent, turn) => {
          amount += 1;
          return turn === 0 ? [{ name: 'pay', arguments: { to: 'acme', amount } }] : 'done';
        },
      ),
    ],
    { name: 'nudge', backend: 'embedded' },
  );
  await fleet.worker();
  await fleet.relay({ idleMs: 60_000 });
});

afterAll(async () => {
  await fleet?.close();
  await provider?.stop();
});

const LISTENING = `
  select a.pid, a.usename, pg_terminate_backend(a.pid) from pg_stat_activity a
  where a.datname = current_database() and a.query like 'listen %'`;

async function carryOne(): Promise<void> {
  const run = await fleet.start({ workflow: 'agents' });
  await fleet.until(run, 'awaiting_approval');
  await fleet.decideAll(run, 'approve');
  await fleet.until(run, 'completed');
}

describe('a relay that sleeps for a minute', () => {
  it('is woken by a start and by a decision', carryOne);

  it('listens again after Postgres has ended its connection, and looks at what it missed', async () => {
    expect(await fleet.rows(LISTENING)).toHaveLength(1);
    await carryOne();
    await expect
      .poll(
        async () =>
          (
            await fleet.rows(
              "select 1 from pg_stat_activity where datname = current_database() and query like 'listen %'",
            )
          ).length,
      )
      .toBe(1);
    await carryOne();
  });
});
