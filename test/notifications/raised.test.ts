/** A person hears of what needs one, because the transition itself says so: in its transaction, or not at all. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { listNotifications } from '../../src/notifications/index.ts';
import { callFunction, openDatabase } from '../../src/postgres/index.ts';
import { approvedRun, intend, pausedRun, release, type SqlRun, settle, sweep } from '../support/sql-run.ts';
import { first, loadToReconcile, openSqlStage, provenAbsent, type SqlStage } from '../support/sql-stage.ts';

let stage: SqlStage;
beforeAll(async () => {
  stage = await openSqlStage('notifications');
});
afterEach(() => stage.endSessions());
afterAll(() => stage?.close());

type Row = {
  kind: string;
  code: string | null;
  action_id: string | null;
  approval_id: string | null;
  tenant: string;
};

async function raised(run: SqlRun): Promise<Row[]> {
  const { rows } = await stage.admin.pool.query<Row>(
    `select kind, code, action_id, approval_id, tenant from countersign.notifications
     where run_id = $1 and kind <> 'approval_requested' order by created_at`,
    [run.id],
  );
  return rows;
}

const alert = (run: SqlRun, kind: string, code: string, action: string | null) => ({
  kind,
  code,
  action_id: action,
  approval_id: null,
  tenant: run.tenant,
});

/** An attempt that is past its deadline at once. */
const SHORT = { sendWithinMs: 1, callTimeoutMs: 1 };

describe('a notification is raised', () => {
  it('for each request for a decision, with the approval and the action', async () => {
    const run = await pausedRun(stage.admin, stage.worker, [{}, {}]);
    const { rows } = await stage.admin.pool.query<Row>(
      'select kind, code, action_id, approval_id, tenant from countersign.notifications where run_id = $1',
      [run.id],
    );
    expect(rows).toHaveLength(2);
    expect(rows).toEqual(
      expect.arrayContaining(
        run.actions.map(({ id, approvalId }) => ({
          kind: 'approval_requested',
          code: null,
          action_id: id,
          approval_id: approvalId,
          tenant: 'acme',
        })),
      ),
    );
    expect(await raised(run)).toEqual([]);
  });

  it('for a contradiction', async () => {
    const run = await provenAbsent(stage);
    await settle(stage.admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
    expect(await raised(run)).toEqual([alert(run, 'contradiction', 'CONTRADICTION', first(run).id)]);
  });

  it('for an action that waits for a person: nobody to ask, or it may not be sent again', async () => {
    const manual = await approvedRun(stage.admin, stage.worker, [{ recovery: 'manual', ...SHORT }]);
    await intend(stage.admin, manual, first(manual));
    await new Promise((resolve) => setTimeout(resolve, 20));
    await loadToReconcile(stage, manual);
    await loadToReconcile(stage, manual);
    expect(await raised(manual)).toEqual([
      alert(manual, 'action_waits_for_person', 'NOBODY_TO_ASK', first(manual).id),
    ]);
    const spent = await approvedRun(stage.admin, stage.worker, [
      { recovery: 'idempotent', budget: 1, ...SHORT },
    ]);
    await intend(stage.admin, spent, first(spent));
    await settle(stage.admin, spent, first(spent), { attempt: 1, outcome: 'unknown', epoch: spent.epoch });
    await sweep(stage.admin, spent);
    await sweep(stage.admin, spent);
    expect(await raised(spent)).toEqual([
      alert(spent, 'action_waits_for_person', 'MAY_NOT_REPEAT', first(spent).id),
    ]);
  });

  it('for a dead letter', async () => {
    const run = await approvedRun(stage.admin, stage.worker, [{}]);
    await release(stage.admin, run, { failure: 'permanent' });
    expect(await raised(run)).toEqual([alert(run, 'run_dead_lettered', 'TEST', null)]);
  });

  it('for a quarantine', async () => {
    const run = await approvedRun(stage.admin, stage.worker, [{}]);
    await callFunction(stage.admin, 'quarantine_run', [run.tenant, run.id, run.epoch, 'SEAL_BROKEN']);
    expect(await raised(run)).toEqual([alert(run, 'security_alert', 'SEAL_BROKEN', null)]);
  });

  it('for an announcement that is dead, once, by the relay’s own role', async () => {
    const run = await pausedRun(stage.admin, stage.worker, [{}]);
    const relay = openDatabase({ url: stage.url, role: 'countersign_relay', max: 1 });
    try {
      const token = randomUUID();
      const claimed = await callFunction<{ id: string; run_id: string }>(relay, 'claim_outbox', [
        1_000,
        60_000,
        token,
      ]);
      const id = claimed.find(({ run_id }) => run_id === run.id)?.id;
      await callFunction(relay, 'mark_outbox_failed', [id, token, true, 2, 0, 'PUBLISH_REFUSED']);
      expect(await raised(run)).toEqual([]);
      await callFunction(relay, 'mark_outbox_failed', [id, token, true, 2, 0, 'PUBLISH_REFUSED']);
    } finally {
      await relay.close();
    }
    expect(await raised(run)).toEqual([alert(run, 'outbox_dead', 'PUBLISH_REFUSED', null)]);
  });

  it('with its cause or not at all: what is rolled back tells nobody', async () => {
    const run = await approvedRun(stage.admin, stage.worker, [{}]);
    const session = await stage.session('countersign_worker');
    await session.query('begin');
    await session.query('select countersign.quarantine_run($1, $2, $3, $4)', [
      run.tenant,
      run.id,
      run.epoch,
      'SEAL_BROKEN',
    ]);
    await session.query('rollback');
    expect(await raised(run)).toEqual([]);
  });
});

describe('the tenants', () => {
  it('see their own, and write none for another', async () => {
    const theirs = await pausedRun(stage.admin, stage.worker, [{}], 'theirs');
    const api = openDatabase({ url: stage.url, role: 'countersign_api', max: 1 });
    try {
      const runsOf = async (tenant: string) =>
        new Set((await listNotifications(api, { tenant, limit: 500 })).map(({ runId }) => runId));
      expect(await runsOf('theirs')).toEqual(new Set([theirs.id]));
      expect(await runsOf('acme')).not.toContain(theirs.id);
      expect(await runsOf('')).toEqual(new Set());
    } finally {
      await api.close();
    }
    for (const role of ['countersign_api', 'countersign_worker'] as const) {
      const session = await stage.session(role);
      const write = (tenant: string) =>
        session.query(
          "insert into countersign.notifications (tenant, run_id, kind) values ($1, gen_random_uuid(), 'contradiction')",
          [tenant],
        );
      await session.query('begin');
      await session.query('select countersign.as_tenant($1)', ['acme']);
      await write('acme');
      await expect(write('theirs')).rejects.toMatchObject({ code: '42501' });
      await session.query('rollback');
    }
  });
});
