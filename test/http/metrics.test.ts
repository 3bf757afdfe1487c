/** The fleet in numbers: true, whole, and of no tenant. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { METRICS, metricsPage } from '../../src/metrics/index.ts';
import { callFunction, openDatabase } from '../../src/postgres/index.ts';
import { announceWorker, approvedRun, intend, pausedRun, release, settle } from '../support/sql-run.ts';
import { first } from '../support/sql-stage.ts';
import { createStage, type Stage } from './stage.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await createStage('metrics');
});
afterAll(() => stage?.close());

async function scrape(): Promise<{
  status: number;
  type: string;
  text: string;
  samples: Map<string, number>;
}> {
  const response = await fetch(`${stage.api.url}/metrics`, {
    headers: { authorization: `Bearer ${stage.tokens['fleet/prometheus']}` },
  });
  const text = await response.text();
  const samples = new Map(
    text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line): [string, number] => {
        const [name = '', value = ''] = line.split(' ');
        return [name, Number(value)];
      }),
  );
  return { status: response.status, type: response.headers.get('content-type') ?? '', text, samples };
}

describe('the metrics page', () => {
  it('is Prometheus text: each metric with its help and type, each label with every value it may have', async () => {
    const { status, type, text, samples } = await scrape();
    expect(status).toBe(200);
    expect(type).toBe('text/plain; version=0.0.4; charset=utf-8');
    const line =
      /^(# HELP countersign_[a-z_]+ [^\n]+|# TYPE countersign_[a-z_]+ (gauge|counter)|countersign_[a-z_]+(\{[a-z]+="[a-z_]+"\})? \d+)$/;
    expect(
      text
        .trimEnd()
        .split('\n')
        .filter((one) => !line.test(one)),
    ).toEqual([]);
    expect(text.endsWith('\n')).toBe(true);
    expect(samples.size).toBe(
      METRICS.reduce((count, { label }) => count + (label === undefined ? 1 : label.values.length), 0),
    );
    expect(samples.get('countersign_runs{status="quarantined"}')).toBe(0);
  });

  it('counts what there is, of all tenants together, and names none of them', async () => {
    const { admin } = stage.fleet;
    const worker = await announceWorker(admin);
    const before = (await scrape()).samples;
    const lookedFor = await approvedRun(admin, worker, [{}], 'acme');
    await intend(admin, lookedFor, first(lookedFor));
    const waits = await approvedRun(admin, worker, [{ recovery: 'manual' }], 'umbrella');
    await intend(admin, waits, first(waits));
    await settle(admin, waits, first(waits), { attempt: 1, outcome: 'unknown', epoch: waits.epoch });
    await callFunction(admin, 'load_action_to_reconcile', [waits.tenant, waits.id, first(waits).id]);
    const givenUp = await approvedRun(admin, worker, [{}], 'umbrella');
    await release(admin, givenUp, { failure: 'permanent' });
    const damaged = await approvedRun(admin, worker, [{}], 'acme');
    await callFunction(admin, 'quarantine_run', ['acme', damaged.id, damaged.epoch, 'SEAL_BROKEN']);
    const undecided = await pausedRun(admin, worker, [{}, {}], 'acme');

    const { samples, text } = await scrape();
    const grown = (name: string) => (samples.get(name) ?? 0) - (before.get(name) ?? 0);
    expect(grown('countersign_runs{status="running"}')).toBe(1);
    expect(grown('countersign_runs{status="awaiting_reconciliation"}')).toBe(1);
    expect(grown('countersign_runs{status="awaiting_approval"}')).toBe(1);
    expect(grown('countersign_runs{status="dead_lettered"}')).toBe(1);
    expect(grown('countersign_runs{status="quarantined"}')).toBe(1);
    expect(grown('countersign_approvals_pending')).toBe(2);
    expect(grown('countersign_actions_open{state="dispatched"}')).toBe(1);
    expect(grown('countersign_actions_open{state="outcome_unknown"}')).toBe(1);
    expect(grown('countersign_actions_waiting_for_person')).toBe(1);
    expect(grown('countersign_dead_letters_open{class="permanent"}')).toBe(1);
    expect(grown('countersign_alerts_total{kind="security_alert"}')).toBe(1);
    expect(grown('countersign_alerts_total{kind="run_dead_lettered"}')).toBe(1);
    expect(grown('countersign_alerts_total{kind="action_waits_for_person"}')).toBe(1);
    expect(samples.get('countersign_workers_alive{kind="resume"}')).toBeGreaterThanOrEqual(1);
    for (const secret of [
      'acme',
      'umbrella',
      'by-hand',
      'alice',
      undecided.id,
      damaged.id,
      first(waits).id,
    ]) {
      expect(text).not.toContain(secret);
    }
  });

  it('shows how long what is ready, or to be published, has been waiting', async () => {
    const { admin, url } = stage.fleet;
    const worker = await announceWorker(admin);
    const run = await pausedRun(admin, worker, [{}]);
    await admin.pool.query(
      "update countersign.runs set status = 'ready', changed_at = clock_timestamp() - interval '100 s' where id = $1",
      [run.id],
    );
    await admin.pool.query(
      "insert into countersign.outbox (tenant, run_id, wake, available_at, claimed_until) values ('acme', $1, 0, clock_timestamp() - interval '50 s', clock_timestamp() + interval '1 h')",
      [run.id],
    );
    const api = openDatabase({ url, role: 'countersign_api', max: 1 });
    const page = await metricsPage(api);
    await api.close();
    const ready = Number(/^countersign_oldest_ready_seconds (\d+)$/m.exec(page)?.[1]);
    const due = Number(/^countersign_outbox_oldest_due_seconds (\d+)$/m.exec(page)?.[1]);
    expect(ready).toBeGreaterThanOrEqual(100);
    expect(due).toBeGreaterThanOrEqual(50);
    await admin.pool.query('delete from countersign.outbox where run_id = $1', [run.id]);
  });

  it('has every status, class and kind that the schema knows', async () => {
    const allowed = async (constraint: string) => {
      const [row] = await stage.fleet.rows<{ def: string }>(
        "select pg_get_constraintdef(oid) as def from pg_constraint where connamespace = 'countersign'::regnamespace and conname like $1",
        [constraint],
      );
      return [...(row?.def ?? '').matchAll(/'([a-z_]+)'/g)].map((match) => match[1] ?? '');
    };
    const labels = (name: string) => [
      ...(METRICS.find((metric) => metric.name === name)?.label?.values ?? []),
    ];
    const ended = ['completed', 'failed', 'cancelled', 'superseded'];
    const statuses = await allowed('a run is in a known status');
    expect(labels('runs').sort()).toEqual(statuses.filter((status) => !ended.includes(status)).sort());
    expect(labels('dead_letters_open').sort()).toEqual(
      (await allowed('a dead letter is of a known class')).sort(),
    );
    const kinds = await allowed('a notification is of a known kind');
    expect(labels('alerts').sort()).toEqual(kinds.filter((kind) => kind !== 'approval_requested').sort());
    expect(labels('workers_alive').sort()).toEqual((await allowed('a worker process is%')).sort());
  });

  it('is for its own role alone: an operator of one tenant learns nothing of the others', async () => {
    for (const who of ['acme/olga', 'acme/rita', 'umbrella/boss'] as const) {
      expect(await stage.ask(who, 'GET', '/metrics')).toMatchObject({
        status: 403,
        body: { code: 'FORBIDDEN', details: { roles: ['metrics'] } },
      });
    }
    expect(await stage.ask(null, 'GET', '/metrics')).toMatchObject({ status: 401 });
  });
});
