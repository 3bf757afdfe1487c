/**
 * The stage of the crash tests: a provider that counts, a Redis of their own, and for each test a fleet without a worker
 * and a run to start on it. Tests bring the worker that is to die.
 */
import { afterAll, beforeAll, expect } from 'vitest';
import type { Running } from '../../src/processes/index.ts';
import { fourKinds, type Kind, PAYMENTS_TABLE } from '../fixtures/four-kinds.ts';
import type { WorkerMainConfig } from '../fixtures/worker-main.ts';
import { createFleet, type Fleet } from './fleet.ts';
import { noPrivateRedis, type PrivateRedis, startPrivateRedis } from './private-redis.ts';
import { type Provider, startProvider } from './provider.ts';
import { chainFaults } from './run-facts.ts';
import { startWorkerProcess, type WorkerProcess } from './worker-process.ts';

const TTL_MS = 1_000;
const TIMES = { sendWithin: '1s', callTimeout: '1s', settlesWithin: '200ms' } as const;
/** How long a run may take to get anywhere on a machine that does many other things. */
export const ENOUGH_MS = 60_000;
/** Cases at once: each is a process of its own and half a fleet. */
const AT_ONCE = 3;

export type CrashStage = {
  fleet: Fleet;
  provider: Provider;
  payee: string;
  relay: Running;
  /** Starts the run. */
  run(): Promise<string>;
  /** A process that halts where it is told to. Default role: a worker. */
  startVictim(halt: WorkerMainConfig['halt'] | null, role?: WorkerMainConfig['role']): Promise<WorkerProcess>;
  /** A worker that is not to die. */
  survivor(options?: { maxAttempts?: number }): Promise<unknown>;
  /** How often this run's payee was paid, in the outside world. */
  effects(): Promise<number>;
  actionOf(runId: string): Promise<{ id: string; state: string; attempt: number }>;
  /** Everything that a write to the run would change; evidence (receipts, and the events that tell of it) is apart. */
  runRows(runId: string): Promise<unknown>;
  expectOneEffect(runId: string): Promise<void>;
};

export type WithRun = (kind: Kind, work: (stage: CrashStage) => Promise<void>) => Promise<void>;

/** Sets the file's stage up and down. The function it returns runs at most three tests at once. */
export function useCrashStage(): WithRun {
  let world: { provider: Provider; redis: PrivateRedis };
  let cases = 0;
  const places = Array.from({ length: AT_ONCE }, () => Promise.resolve());

  beforeAll(async () => {
    if (noPrivateRedis) return;
    world = { provider: await startProvider(), redis: await startPrivateRedis() };
    // What looks up or asks a person may not lean on the provider's own memory of keys.
    await world.provider.client.setMode('pay-lookup', { dedupe: false });
    await world.provider.client.setMode('pay-manual', { dedupe: false });
  });

  afterAll(async () => {
    await world?.redis.close();
    await world?.provider.stop();
  });

  return (kind, work) => {
    cases += 1;
    const number = cases;
    const before = places[number % AT_ONCE] ?? Promise.resolve();
    const mine = before.then(() => perform(world, number, kind, work));
    places[number % AT_ONCE] = mine.catch(() => undefined);
    return mine;
  };
}

async function perform(
  { provider, redis }: { provider: Provider; redis: PrivateRedis },
  number: number,
  kind: Kind,
  work: (stage: CrashStage) => Promise<void>,
): Promise<void> {
  const settings = { providerUrl: provider.url, ...TIMES };
  const redisUrl = redis.url(number % 64);
  const fleet = await createFleet(fourKinds(settings), { name: `crash ${kind}`, backend: 'redis', redisUrl });
  const payee = `payee-${number}`;
  const config = {
    databaseUrl: fleet.url,
    redisUrl,
    keys: fleet.keySpec,
    workflows: settings,
    ttlMs: TTL_MS,
  };
  const victims: WorkerProcess[] = [];
  try {
    if (kind === 'transactional') await fleet.rows(PAYMENTS_TABLE);
    const relay = await fleet.relay();
    await fleet.reconciler({ patienceMs: 300 });
    await work({
      ...observer(fleet, provider, kind, payee),
      fleet,
      provider,
      payee,
      relay,
      run: () => fleet.start({ workflow: `pay-${kind}`, input: `${payee} 10` }),
      async startVictim(halt, role = 'worker') {
        const started = await startWorkerProcess({ ...config, role, ...(halt ? { halt } : {}) });
        victims.push(started);
        return started;
      },
      survivor: (options) => fleet.worker({ ttlMs: TTL_MS, ...options }),
    });
    expect(await chainFaults(fleet.admin)).toEqual([]);
  } finally {
    await Promise.all(victims.map((victim) => victim.kill()));
    await fleet.close();
  }
}

type Observer = Pick<CrashStage, 'effects' | 'actionOf' | 'runRows' | 'expectOneEffect'>;

function observer(fleet: Fleet, provider: Provider, kind: Kind, payee: string): Observer {
  const effects = async () =>
    kind === 'transactional'
      ? (await fleet.rows('select 1 from public.payments where payee = $1', [payee])).length
      : (await provider.client.findBy(`pay-${kind}`, 'to', payee)).effects.length;
  const actionOf = async (runId: string) => {
    const [row] = await fleet.rows<{ id: string; state: string; attempt: number }>(
      'select id, state, attempt from countersign.actions where run_id = $1',
      [runId],
    );
    if (row === undefined) throw new Error('the run has no action');
    return row;
  };
  return {
    effects,
    actionOf,
    runRows: async (runId) => ({
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
    }),
    async expectOneEffect(runId) {
      expect(await effects()).toBe(1);
      expect((await actionOf(runId)).state).toBe('succeeded');
      const events = await fleet.rows<{ kind: string }>(
        'select kind from countersign.events where run_id = $1',
        [runId],
      );
      const kinds = events.map((event) => event.kind);
      expect(kinds.filter((name) => name === 'run_completed')).toHaveLength(1);
      expect(kinds).not.toContain('contradiction');
      expect(kinds).not.toContain('run_dead_lettered');
    },
  };
}
