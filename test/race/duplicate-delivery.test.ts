/**
 * At least once means sometimes twice, late, out of order and to the wrong address (S01, S12). Two real worker
 * processes, on both queues; the relay of this test publishes every announcement under two job ids at once.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { decide, listApprovals, showApproval } from '../../src/approvals/index.ts';
import { createLog } from '../../src/log.ts';
import { relayOnce } from '../../src/outbox/index.ts';
import { openDatabase } from '../../src/postgres/index.ts';
import { type Running, runLoop } from '../../src/processes/index.ts';
import { openResumeQueue, type ResumeQueue } from '../../src/queue/index.ts';
import type { DeliveryCounts } from '../../src/runs/index.ts';
import { fourKinds } from '../fixtures/four-kinds.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { noPrivateRedis, type PrivateRedis, startPrivateRedis } from '../support/private-redis.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { chainFaults } from '../support/run-facts.ts';
import { until } from '../support/sessions.ts';
import { startWorkerProcess, type WorkerProcess } from '../support/worker-process.ts';

const ROUNDS = 25;
const AT_ONCE = 5;
const backends = noPrivateRedis ? (['embedded'] as const) : (['redis', 'embedded'] as const);

describe.each(backends)('on %s', (backend) => {
  let provider: Provider;
  let redis: PrivateRedis | null = null;
  let fleet: Fleet;
  let queue: ResumeQueue;
  let relay: Running;
  let workers: WorkerProcess[];

  beforeAll(async () => {
    provider = await startProvider();
    await provider.client.setMode('pay-lookup', { dedupe: false });
    redis = backend === 'redis' ? await startPrivateRedis() : null;
    const workflows = { providerUrl: provider.url };
    fleet = await createFleet(fourKinds(workflows), {
      name: `duplicates ${backend}`,
      backend,
      ...(redis === null ? {} : { redisUrl: redis.url() }),
    });
    queue = openResumeQueue({ redisUrl: fleet.redisUrl, postgresUrl: fleet.url, onError: () => undefined });
    relay = doublingRelay(fleet, queue);
    await fleet.reconciler();
    const config = {
      role: 'worker',
      databaseUrl: fleet.url,
      redisUrl: fleet.redisUrl,
      keys: fleet.keySpec,
    } as const;
    workers = await Promise.all(
      [1, 2].map(() => startWorkerProcess({ ...config, workflows, ttlMs: 2_000, concurrency: AT_ONCE })),
    );
  });

  afterAll(async () => {
    await Promise.all((workers ?? []).map((worker) => worker.kill()));
    await relay?.stop();
    await queue?.close();
    await fleet?.close();
    await provider?.stop();
    await redis?.close();
  });

  it(`S01: of two deliveries to two processes one carries the run, ${ROUNDS} times over`, async () => {
    await provider.client.fault({ fault: { type: 'delay_answer', ms: 20 }, next: 0 });
    const runIds: string[] = [];
    while (runIds.length < ROUNDS) {
      const batch = await Promise.all(
        Array.from({ length: AT_ONCE }, (_, index) =>
          fleet.start({ workflow: 'pay-lookup', input: `round-${runIds.length + index} 1` }),
        ),
      );
      await Promise.all(batch.map((runId) => fleet.until(runId, 'awaiting_approval', 60_000)));
      await Promise.all(batch.map((runId) => fleet.decideAll(runId, 'approve')));
      await Promise.all(batch.map((runId) => fleet.until(runId, 'completed', 60_000)));
      runIds.push(...batch);
    }
    await provider.client.clearFaults();
    for (const [index, runId] of runIds.entries()) {
      await expectCarriedOnce(runId, `round-${index}`);
    }

    // Both deliveries again, long after; in the wrong order; with a wake that never was; to the wrong tenant.
    const copies = runIds.flatMap((runId) => [
      { tenant: 'acme', runId, wake: 2 },
      { tenant: 'acme', runId, wake: 1 },
      { tenant: 'acme', runId, wake: 99 },
      { tenant: 'elsewhere', runId, wake: 2 },
    ]);
    await queue.publish([...copies, ...copies].map((job) => ({ id: randomUUID(), job })));
    await until(async () => (await queue.depth()) === 0, 'the queue to be empty', 60_000);
    for (const [index, runId] of runIds.entries()) {
      await expectCarriedOnce(runId, `round-${index}`);
    }
    expect(await fleet.rows('select 1 from countersign.dead_letters')).toEqual([]);
    expect(await chainFaults(fleet.admin)).toEqual([]);
  }, 240_000);

  it('a delivery of an older wake neither claims a waiting run nor delays the right one', async () => {
    const runId = await fleet.start({ workflow: 'pay-lookup', input: 'stale 1' });
    await fleet.until(runId, 'awaiting_approval', 60_000);
    await queue.publish([{ id: randomUUID(), job: { tenant: 'acme', runId, wake: 1 } }]);
    await until(async () => (await queue.depth()) === 0, 'the stale delivery to be taken', 60_000);
    expect(await claims(runId)).toBe(1);
    await fleet.decideAll(runId, 'approve');
    await fleet.until(runId, 'completed', 60_000);
    await expectCarriedOnce(runId, 'stale');
  }, 90_000);

  it('S12: a run of any tenant and any key resumes exactly once, whatever their names hold', async () => {
    const names = [
      '42',
      '0',
      'a:b',
      'a:b:c',
      'a:b:c:d',
      'ünï',
      'x'.repeat(300),
      `{"a":1}, 'quoted' \\ "…"`,
      ' ',
    ];
    const pairs = [
      ...names.map((name) => [name, name] as const),
      ['a', 'b-c'] as const,
      ['a-b', 'c'] as const,
      ['a', 'b:c'] as const,
    ];
    const runs = await Promise.all(
      pairs.map(async ([tenant, key], index) => ({
        tenant,
        payee: `named-${index}`,
        runId: await fleet.start({ tenant, key, workflow: 'pay-lookup', input: `named-${index} 1` }),
      })),
    );
    expect(new Set(runs.map(({ runId }) => runId)).size).toBe(pairs.length);
    await Promise.all(runs.map(({ runId }) => fleet.until(runId, 'awaiting_approval', 60_000)));
    await Promise.all(runs.map(({ tenant }) => approveAll(tenant)));
    await Promise.all(runs.map(({ runId }) => fleet.until(runId, 'completed', 60_000)));
    for (const { runId, payee } of runs) {
      await expectCarriedOnce(runId, payee);
    }
    expect(
      await fleet.rows('select 1 from countersign.outbox where dead_at is not null or failures > 0'),
    ).toEqual([]);
  }, 120_000);

  it('duplicates, late and misdirected deliveries are counted, none of them as a failure', async () => {
    const counts = (await Promise.all(workers.map((worker) => worker.stop()))).reduce<
      Partial<DeliveryCounts>
    >(
      (sum, each) =>
        Object.fromEntries(
          Object.entries(each).map(([what, n]) => [what, n + (sum[what as keyof DeliveryCounts] ?? 0)]),
        ),
      {},
    );
    const [{ runs = 0 } = {}] = await fleet.rows<{ runs: number }>(
      'select count(*)::integer as runs from countersign.runs',
    );
    expect(counts).toMatchObject({
      claimed: 2 * runs,
      paused: runs,
      completed: runs,
      failed: 0,
      released: 0,
      quarantined: 0,
    });
    expect((counts.stale ?? 0) + (counts.held ?? 0)).toBeGreaterThanOrEqual(2 * ROUNDS);
    expect(counts.unknown).toBe(2 * ROUNDS);
    expect(workers.map((worker) => worker.exit())).toEqual([
      { code: 0, signal: null },
      { code: 0, signal: null },
    ]);
  }, 60_000);

  const claims = async (runId: string) =>
    (await events(runId)).filter((kind) => kind === 'run_claimed').length;

  async function events(runId: string): Promise<string[]> {
    const rows = await fleet.rows<{ kind: string }>(
      'select kind from countersign.events where run_id = $1 order by n',
      [runId],
    );
    return rows.map(({ kind }) => kind);
  }

  async function expectCarriedOnce(runId: string, payee: string): Promise<void> {
    const { effects } = await provider.client.findBy('pay-lookup', 'to', payee);
    const kinds = await events(runId);
    const times = (kind: string) => kinds.filter((each) => each === kind).length;
    expect({
      effects: effects.length,
      claimed: times('run_claimed'),
      approved: times('decision_approved'),
      dispatched: times('action_dispatched'),
      completed: times('run_completed'),
    }).toEqual({ effects: 1, claimed: 2, approved: 1, dispatched: 1, completed: 1 });
  }

  async function approveAll(tenant: string): Promise<void> {
    for (const { id } of await listApprovals(fleet.api, { tenant })) {
      const { fingerprint } = await showApproval(fleet.api, fleet.keys, { tenant, approvalId: id });
      await decide(fleet.api, fleet.keys, {
        tenant,
        approvalId: id,
        verdict: 'approve',
        subject: 'alice',
        fingerprint,
      });
    }
  }
});

/** The real relay, except that every announcement goes out twice in one call, under two ids. */
function doublingRelay(fleet: Fleet, queue: ResumeQueue): Running {
  const log = createLog('relay', process.env.TEST_LOG ?? 'silent');
  const db = openDatabase({ url: fleet.url, role: 'countersign_relay', max: 2 });
  const doubling: ResumeQueue = {
    ...queue,
    publish: (rows) => queue.publish(rows.flatMap((row) => [row, { ...row, id: randomUUID() }])),
  };
  const loop = runLoop({
    name: 'doubling relay',
    log,
    idleMs: 10,
    pass: async () => (await relayOnce(db, doubling, log, { limit: 200 })).sent,
  });
  return {
    async stop() {
      await loop.stop();
      await db.close();
    },
  };
}
