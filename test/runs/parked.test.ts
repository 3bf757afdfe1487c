/** A run that a worker finds it cannot carry is tried again ever more seldom, and spends nothing. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { callFunction, openDatabase } from '../../src/postgres/index.ts';
import { explain, unparkOnce } from '../../src/runs/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { crew, named } from '../support/crew.ts';
import { createFleet } from '../support/fleet.ts';
import {
  announceWorker,
  claim,
  journal,
  SQL_WORKFLOW,
  type SqlRun,
  startRun,
  sweep,
} from '../support/sql-run.ts';
import { openSqlStage, type SqlStage } from '../support/sql-stage.ts';

const PATIENCE_MS = 15_000;
let stage: SqlStage;
let run: SqlRun;
beforeAll(async () => {
  stage = await openSqlStage('parked');
});
beforeEach(async () => {
  await stage.admin.pool.query(
    "update countersign.workers set started_at = clock_timestamp() - interval '1 h'",
  );
  run = await startRun(stage.admin, stage.worker);
});
afterAll(() => stage?.close());

/** A worker claims it and finds that it lacks a key. */
async function parkAgain(between?: () => Promise<unknown>): Promise<void> {
  const { wake } = await row();
  expect((await claim(stage.admin, run, { wake })).outcome).toBe('claimed');
  await between?.();
  await callFunction(stage.admin, 'park_run', [run.tenant, run.id, run.epoch, 'KEY_MISSING']);
}

async function row() {
  const { rows } = await stage.admin.pool.query<{
    status: string;
    wake: number;
    parked_times: number;
    attempts_in_round: number;
    wait: number | null;
  }>(
    `select r.status, r.wake, r.parked_times, r.attempts_in_round,
       round(extract(epoch from countersign.parked_until(r, $2) - r.parked_at))::integer as wait
     from countersign.runs r where r.id = $1`,
    [run.id, PATIENCE_MS],
  );
  const [found] = rows;
  if (found === undefined) throw new Error('no run');
  return found;
}

/** As if that much time had passed since it was parked. */
const later = (seconds: number) =>
  stage.admin.pool.query(
    "update countersign.runs set parked_at = parked_at - $2 * interval '1 s' where id = $1",
    [run.id, seconds],
  );

describe('a parked run', () => {
  it('waits for the sweep’s patience, doubled each time up to ten minutes, and no attempt is spent', async () => {
    const waits = [];
    for (let times = 1; times <= 8; times += 1) {
      await parkAgain();
      const { wait, ...parked } = await row();
      waits.push(wait);
      expect(parked).toMatchObject({ status: 'parked', parked_times: times, attempts_in_round: 0 });
      expect(await sweep(stage.admin, run, PATIENCE_MS)).toBe('nothing');
      expect((await row()).status).toBe('parked');
      await later(wait ?? 0);
      expect(await sweep(stage.admin, run, PATIENCE_MS)).toBe('settled');
      expect((await row()).status).toBe('ready');
    }
    expect(waits).toEqual([15, 30, 60, 120, 240, 480, 600, 600]);
  });

  it('is tried as soon as a worker starts that could carry it, and counted from the beginning', async () => {
    await parkAgain();
    await later(15);
    await sweep(stage.admin, run, PATIENCE_MS);
    await parkAgain();
    expect(await row()).toMatchObject({ status: 'parked', parked_times: 2, wait: 30 });
    await announceWorker(stage.admin);
    const worker = openDatabase({ url: stage.url, role: 'countersign_worker', max: 1 });
    await unparkOnce(worker, { limit: 1_000, workflows: [SQL_WORKFLOW] });
    await worker.close();
    expect((await row()).status).toBe('ready');
    await parkAgain();
    expect(await row()).toMatchObject({ status: 'parked', parked_times: 1, wait: 15 });
  });

  it('is tried by the next sweep after a worker started, were its own look at parked runs lost', async () => {
    await parkAgain();
    expect(await sweep(stage.admin, run, PATIENCE_MS)).toBe('nothing');
    await announceWorker(stage.admin);
    expect(await sweep(stage.admin, run, PATIENCE_MS)).toBe('settled');
  });

  it('that got further before it was parked again is counted from the beginning', async () => {
    await parkAgain();
    await later(15);
    await sweep(stage.admin, run, PATIENCE_MS);
    await parkAgain(() => journal(stage.admin, run, [{}]));
    expect(await row()).toMatchObject({ parked_times: 1 });
  });
});

it('a key that is missing for a while parks the run, says how often, and the key’s return carries it on', async () => {
  const workflows = [
    crew(
      () => named('talker'),
      () => 'done',
    ),
  ];
  const fleet = await createFleet(workflows, { name: 'parked', backend: 'embedded' });
  try {
    await fleet.relay();
    await fleet.reconciler({ patienceMs: 100 });
    const keyless = await fleet.worker({ keys: KeyRing.parse(KeyRing.generate()) });
    const runId = await fleet.start({ workflow: 'agents' });
    const times = async () =>
      (
        await fleet.rows<{ n: number }>('select parked_times as n from countersign.runs where id = $1', [
          runId,
        ])
      )[0]?.n ?? 0;
    await expect.poll(times, { timeout: 20_000 }).toBeGreaterThanOrEqual(2);
    await fleet.until(runId, 'parked');
    const { next } = await explain(fleet.api, { tenant: 'acme', runId });
    expect(next[0]).toMatch(/could not carry it \(KEY_MISSING\), \d+ time\(s\) in a row/);
    await keyless.stop();
    await fleet.worker();
    await fleet.until(runId, 'completed');
    expect(
      await fleet.rows("select 1 from countersign.events where run_id = $1 and kind = 'run_dead_lettered'", [
        runId,
      ]),
    ).toEqual([]);
  } finally {
    await fleet.close();
  }
});
