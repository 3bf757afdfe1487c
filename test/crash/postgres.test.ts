/**
 * Postgres ends every connection of the fleet, twice, while runs are going (S17). No process may end with them, no
 * run may be left, and no effect may happen twice.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fourKinds, KINDS, PAYMENTS_TABLE } from '../fixtures/four-kinds.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { noPrivateRedis, type PrivateRedis, startPrivateRedis } from '../support/private-redis.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { chainFaults } from '../support/run-facts.ts';
import { until } from '../support/sessions.ts';
import { startWorkerProcess, type WorkerProcess } from '../support/worker-process.ts';

const LONG_MS = 90_000;
const RUNS = 12;
const backends = noPrivateRedis ? (['embedded'] as const) : (['redis', 'embedded'] as const);

describe.each(backends)('every Postgres connection is ended, on %s', (backend) => {
  let provider: Provider;
  let redis: PrivateRedis | null = null;
  let fleet: Fleet;
  let processes: WorkerProcess[] = [];

  beforeAll(async () => {
    provider = await startProvider();
    await provider.client.setMode('pay-lookup', { dedupe: false });
    redis = backend === 'redis' ? await startPrivateRedis() : null;
    const workflows = { providerUrl: provider.url, callTimeout: '2s', settlesWithin: '200ms' } as const;
    fleet = await createFleet(fourKinds(workflows), {
      name: `postgres ${backend}`,
      backend,
      ...(redis === null ? {} : { redisUrl: redis.url() }),
    });
    await fleet.rows(PAYMENTS_TABLE);
    const config = {
      databaseUrl: fleet.url,
      redisUrl: fleet.redisUrl,
      keys: fleet.keySpec,
      workflows,
      ttlMs: 1_500,
    };
    processes = await Promise.all(
      (['relay', 'reconciler', 'worker', 'worker'] as const).map((role) =>
        startWorkerProcess({ ...config, role, concurrency: 4, maxAttempts: 20 }),
      ),
    );
  }, 150_000);

  afterAll(async () => {
    await Promise.all(processes.map((each) => each.kill()));
    await fleet?.close();
    await provider?.stop();
    await redis?.close();
  });

  it('S17: no process exits, all runs finish, each effect happens once, and wake-ups work afterwards', async () => {
    // What has a look-up, a provider's memory or the ledger's own transaction; a `manual` one would wait for a person.
    const kinds = KINDS.filter((kind) => kind !== 'manual');
    await provider.client.fault({ fault: { type: 'delay_answer', ms: 100 }, next: 0 });
    const runs = await Promise.all(
      Array.from({ length: RUNS }, async (_, index) => {
        const kind = kinds[index % kinds.length] ?? 'lookup';
        const payee = `payee-${index}`;
        return {
          kind,
          payee,
          runId: await retried(() => fleet.start({ workflow: `pay-${kind}`, input: `${payee} 1` })),
        };
      }),
    );
    const going = Promise.all(
      runs.map(async ({ runId }) => {
        await retried(() => fleet.until(runId, 'awaiting_approval', LONG_MS));
        await retried(() => fleet.decideAll(runId, 'approve'));
        await retried(() => fleet.until(runId, 'completed', LONG_MS));
      }),
    );
    for (let round = 0; round < 2; round += 1) {
      await until(async () => (await endConnections()) > 4, 'connections to end');
      await sleep(1_000);
    }
    await going;
    expect(processes.map((each) => each.exit())).toEqual(processes.map(() => null));
    for (const { kind, payee } of runs) {
      const effects =
        kind === 'transactional'
          ? (await fleet.rows('select 1 from public.payments where payee = $1', [payee])).length
          : (await provider.client.findBy(`pay-${kind}`, 'to', payee)).effects.length;
      expect({ kind, payee, effects }).toEqual({ kind, payee, effects: 1 });
    }
    const after = await fleet.start({ workflow: 'pay-lookup', input: 'afterwards 1' });
    await fleet.until(after, 'awaiting_approval', 10_000);
    await fleet.decideAll(after, 'approve');
    await fleet.until(after, 'completed', 10_000);
    expect(await fleet.rows('select 1 from countersign.dead_letters')).toEqual([]);
    expect(await chainFaults(fleet.admin)).toEqual([]);
  }, 240_000);

  // Open: the settle is tried once. Its connection is ended under it, and the receipt, the only proof there is of a
  // `manual` effect, is dropped by the worker that holds it.
  it('a receipt in hand outlives the connection that was to store it', async () => {
    await provider.client.clearFaults();
    await fleet.rows(`
      create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(2); return new; end $$;
      create trigger slow before insert on countersign.receipts for each row execute function public.slow();`);
    const runId = await fleet.start({ workflow: 'pay-manual', input: 'receipt 1' });
    await fleet.until(runId, 'awaiting_approval', LONG_MS);
    await fleet.decideAll(runId, 'approve');
    await until(
      async () =>
        (
          await fleet.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where query like '%settle_actions%' and wait_event = 'PgSleep'",
          )
        ).length > 0,
      'the receipt to be on its way',
      20_000,
    );
    await fleet.rows('drop trigger slow on countersign.receipts');
    expect((await provider.client.findBy('pay-manual', 'to', 'receipt')).effects).toHaveLength(1);
    await fleet.until(runId, 'completed', 6_000);
  }, 60_000);

  /** Everything of this database but the connection that asks. */
  async function endConnections(): Promise<number> {
    const ended = await fleet.rows(
      'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
    );
    return ended.length;
  }

  /** The test's own connections are ended as well; what it asks for is safe to ask for again. */
  async function retried<T>(work: () => Promise<T>): Promise<T> {
    for (let left = 20; ; left -= 1) {
      try {
        return await work();
      } catch (error) {
        if (left === 0 || (error instanceof Error && /wanted/.test(error.message))) throw error;
        await sleep(100);
      }
    }
  }
});
