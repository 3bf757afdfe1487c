/**
 * Tenants never meet (I11), and each role sees what its job needs (I12): read from the catalogs, so that a table or a
 * function that is added tomorrow is covered, and tried with two tenants' real rows.
 */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { resolveAction } from '../../src/actions/index.ts';
import { decide, listApprovals, revoke, showApproval } from '../../src/approvals/index.ts';
import { isCountersignError } from '../../src/errors.ts';
import { callFunction, type Database, openDatabase, type ProcessRole } from '../../src/postgres/index.ts';
import { cancelRun, explain, listRuns, showRun, start } from '../../src/runs/index.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { facts } from '../support/run-facts.ts';
import { openSession } from '../support/sessions.ts';
import {
  announceWorker,
  approvedRun,
  claim,
  intend,
  pausedRun,
  release,
  SQL_WORKFLOW,
  type SqlRun,
  settle,
} from '../support/sql-run.ts';

/** They describe the fleet and hold no tenant's data. */
const WITHOUT_TENANT = ['migrations', 'workers', 'workflows'];
const ROLES: ProcessRole[] = ['countersign_api', 'countersign_worker', 'countersign_relay'];
const keys = KeyRing.parse(KeyRing.generate());
const [workflow = '', version = ''] = SQL_WORKFLOW.split('@');

let database: TestDatabase;
let admin: Database;
let api: Database;
let worker: string;
let mine: SqlRun;
let theirs: SqlRun;
const sessions: pg.Client[] = [];

beforeAll(async () => {
  database = await createTestDatabase('tenants');
  admin = openDatabase({ url: database.url, role: null, max: 4 });
  api = openDatabase({ url: database.url, role: 'countersign_api', max: 12 });
  worker = await announceWorker(admin);
  mine = await lived('mine');
  theirs = await lived('theirs');
});

afterAll(async () => {
  await Promise.all(sessions.map((session) => session.end()));
  await api.close();
  await admin.close();
  await database.drop();
});

/** A tenant with a row in (nearly) every table, and a run that waits for a decision. */
async function lived(tenant: string): Promise<SqlRun> {
  const run = await approvedRun(admin, worker, [{ recovery: 'manual' }], tenant);
  const [action] = run.actions;
  if (action === undefined) throw new Error('no action');
  await intend(admin, run, action);
  await settle(admin, run, action, { attempt: 1, outcome: 'succeeded' });
  await callFunction(admin, 'store_tool_result', [
    tenant,
    run.id,
    run.epoch,
    'call_x',
    'read',
    Buffer.from('x'),
  ]);
  await callFunction(admin, 'count_wasted', [tenant, run.id, run.epoch, '{}']);
  await release(admin, run, { failure: 'permanent' });
  await start(api, keys, { tenant, workflow, version, input: 'hi', requestedBy: 'x', session: 'chat' });
  return pausedRun(admin, worker, [{}], tenant);
}

async function asRole(role: ProcessRole): Promise<pg.Client> {
  const session = await openSession(database.url, role);
  sessions.push(session);
  return session;
}

async function rows<Row>(sql: string, values: unknown[] = []): Promise<Row[]> {
  return (await admin.pool.query(sql, values)).rows as Row[];
}

const tables = async () =>
  (
    await rows<{ relname: string }>(
      "select relname from pg_class where relnamespace = 'countersign'::regnamespace and relkind in ('r', 'p') order by relname",
    )
  ).map(({ relname }) => relname);

const tenantTables = async () => (await tables()).filter((table) => !WITHOUT_TENANT.includes(table));

describe('every table of a tenant', () => {
  it('has row-level security enabled and forced, with a policy that names the tenant', async () => {
    const secured = await rows<{ relname: string; forced: boolean; named: boolean }>(`
      select c.relname, c.relrowsecurity and c.relforcerowsecurity as forced,
        exists (select 1 from pg_policies p where p.schemaname = 'countersign' and p.tablename = c.relname
          and p.roles = '{public}' and p.cmd = 'ALL' and p.qual like '%countersign.tenant%') as named
      from pg_class c where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'p') order by c.relname`);
    const open = secured.filter(({ forced, named }) => !(forced && named)).map(({ relname }) => relname);
    expect(open).toEqual(WITHOUT_TENANT);
  });

  it('has no view, sequence of names or materialised copy beside it that would show the same rows', async () => {
    const others = await rows(
      "select relname from pg_class where relnamespace = 'countersign'::regnamespace and relkind in ('v', 'm', 'f')",
    );
    expect(others).toEqual([]);
  });

  it('shows nothing to any role while no tenant is named, and then that tenant alone', async () => {
    const seen = new Set<string>();
    for (const role of ROLES) {
      const session = await asRole(role);
      for (const table of await tenantTables()) {
        const owner = table === 'tenants' ? 'id' : 'tenant';
        const [allowed] = await rows<{ yes: boolean }>('select has_column_privilege($1, $2, $3, $4) as yes', [
          role,
          `countersign.${table}`,
          owner,
          'select',
        ]);
        if (allowed?.yes !== true) continue;
        const ask = async (tenant: string | null) => {
          await session.query('begin');
          if (tenant !== null)
            await session.query("select set_config('countersign.tenant', $1, true)", [tenant]);
          const found = await session.query(`select distinct ${owner} as owner from countersign.${table}`);
          await session.query('commit');
          return found.rows.map(({ owner: name }: { owner: string }) => name);
        };
        expect([table, role, await ask(null)]).toEqual([table, role, []]);
        expect([table, role, await ask('')]).toEqual([table, role, []]);
        expect([table, role, await ask('nobody')]).toEqual([table, role, []]);
        const found = await ask('mine');
        expect(found.filter((name) => name !== 'mine')).toEqual([]);
        if (found.length > 0) seen.add(table);
      }
    }
    // What the two tenants' rows did not reach is named, so that nothing is passed over in silence.
    expect((await tenantTables()).filter((table) => !seen.has(table))).toEqual(
      ['session_items', 'votes'].filter((table) => !seen.has(table)),
    );
  });

  it('refuses a row of another tenant, also to a role that may insert or update there', async () => {
    const session = await asRole('countersign_worker');
    await session.query('begin');
    await session.query("select set_config('countersign.tenant', 'mine', true)");
    const foreign = session.query(
      'insert into countersign.outbox (tenant, run_id, wake) values ($1, $2, 1)',
      ['theirs', theirs.id],
    );
    await expect(foreign).rejects.toMatchObject({ code: '42501' });
    await session.query('rollback');
    await session.query('begin');
    await session.query("select set_config('countersign.tenant', 'mine', true)");
    const moved = await session.query("update countersign.runs set reason = 'stolen' where id = $1", [
      theirs.id,
    ]);
    expect(moved.rowCount).toBe(0);
    await session.query('rollback');
  });
});

describe('the roles', () => {
  it('open no sealed column but those of their job', async () => {
    const granted = await rows<{ column: string; roles: string[] }>(
      `
      select c.relname || '.' || a.attname as column, array_agg(r.role order by r.role) filter (
        where has_column_privilege(r.role, c.oid, a.attnum, 'select')) as roles
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and a.attname like '%sealed%'
      cross join unnest($1::text[]) as r (role)
      where c.relnamespace = 'countersign'::regnamespace and c.relkind = 'r' group by 1 order by 1`,
      [['countersign_api', 'countersign_loops', 'countersign_relay', 'countersign_worker']],
    );
    const onlyWorker = [
      'checkpoints.sealed',
      'model_calls.sealed',
      'receipts.sealed',
      'session_items.sealed',
      'tool_results.sealed',
    ];
    for (const { column, roles } of granted) {
      const expected = onlyWorker.includes(column)
        ? ['countersign_worker']
        : ['countersign_api', 'countersign_worker'];
      expect([column, roles]).toEqual([column, expected]);
    }
    expect(granted.length).toBeGreaterThanOrEqual(9);
  });

  it('may delete nothing of a tenant but a session’s items, and change no checkpoint, receipt or event', async () => {
    const may = await rows<{ table: string; verb: string }>(`
      select distinct c.relname as table, v.verb from pg_class c
      cross join unnest(array['countersign_api', 'countersign_loops', 'countersign_relay', 'countersign_worker']) as r (role)
      cross join unnest(array['delete', 'truncate', 'update']) as v (verb)
      where c.relnamespace = 'countersign'::regnamespace and c.relkind = 'r' and c.relname <> 'workers'
        and (case when v.verb = 'update' then has_any_column_privilege(r.role, c.oid, 'update') else has_table_privilege(r.role, c.oid, v.verb) end)
      order by 1, 2`);
    expect(may.filter(({ verb }) => verb !== 'update')).toEqual([{ table: 'session_items', verb: 'delete' }]);
    const immutable = ['checkpoints', 'receipts', 'events', 'tool_results', 'migrations', 'workflows'];
    expect(may.filter(({ table, verb }) => verb === 'update' && immutable.includes(table))).toEqual([]);
  });

  it('the relay sees no row of any tenant, only what its functions hand out', async () => {
    const session = await asRole('countersign_relay');
    for (const table of await tenantTables()) {
      await expect(session.query(`select * from countersign.${table}`)).rejects.toMatchObject({
        code: '42501',
      });
    }
    await expect(
      session.query('select * from countersign.sweep_run($1, $2, 0)', ['mine', mine.id]),
    ).rejects.toMatchObject({ code: '42501' });
  });

  it('a worker cannot decide, and the api cannot intend, settle or claim', async () => {
    const may = async (role: string, name: string) =>
      (
        await rows<{ yes: boolean }>(
          "select has_function_privilege($1, oid, 'execute') as yes from pg_proc where pronamespace = 'countersign'::regnamespace and proname = $2",
          [role, name],
        )
      )[0]?.yes;
    for (const name of [
      'decide_approval',
      'revoke_approval',
      'claim_outbox',
      'resolve_action',
      'release_quarantine',
      'replay_dead_letter',
    ]) {
      expect([name, await may('countersign_worker', name)]).toEqual([name, false]);
    }
    for (const name of [
      'intend_actions',
      'settle_actions',
      'claim_runs',
      'pause_run',
      'finish_runs',
      'journal_response',
      'claim_outbox',
    ]) {
      expect([name, await may('countersign_api', name)]).toEqual([name, false]);
    }
  });

  it('nobody else may call any function of the schema', async () => {
    const open = await rows(`
      select p.proname from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) acl
      where p.pronamespace = 'countersign'::regnamespace and acl.grantee = 0`);
    expect(open).toEqual([]);
  });
});

describe('functions that run as their owner', () => {
  const definers = () =>
    rows<{ name: string; owner: string; path: string | null; columns: string[] }>(`
      select p.proname as name, r.rolname as owner,
        (select c from unnest(p.proconfig) as c where c like 'search_path=%') as path,
        coalesce(array(select t.typname || ' ' || n from unnest(p.proallargtypes, p.proargmodes, p.proargnames) as a (oid, mode, n)
          join pg_type t on t.oid = a.oid where a.mode in ('o', 't') order by 1), '{}') as columns
      from pg_proc p join pg_roles r on r.oid = p.proowner
      where p.pronamespace = 'countersign'::regnamespace and p.prosecdef order by 1`);

  it('fix their search path', async () => {
    expect((await definers()).filter(({ path }) => path !== 'search_path=countersign, pg_temp')).toEqual([]);
  });

  it('hand out ids, codes and numbers only, never a sealed byte or a row', async () => {
    const kinds = new Set(
      (await definers()).flatMap(({ columns }) => columns.map((column) => column.split(' ')[0])),
    );
    expect([...kinds].sort()).toEqual(
      ['_text', '_uuid', 'bool', 'int4', 'text', 'timestamptz', 'uuid'].filter((kind) => kinds.has(kind)),
    );
  });

  it('that cross tenants belong to a role that may read no sealed column and log in nowhere', async () => {
    const loops = (await definers())
      .filter(({ owner }) => owner === 'countersign_loops')
      .map(({ name }) => name);
    expect(loops).toEqual(
      expect.arrayContaining(['claim_outbox', 'runs_to_sweep', 'claim_actions_to_reconcile', 'renew_holds']),
    );
    const [role] = await rows(
      "select rolcanlogin, rolsuper, rolbypassrls from pg_roles where rolname = 'countersign_loops'",
    );
    expect(role).toEqual({ rolcanlogin: false, rolsuper: false, rolbypassrls: false });
  });
});

describe('S24: another tenant’s id', () => {
  it('is answered exactly like one that does not exist, by every verb, and changes nothing', async () => {
    const before = await facts(admin, mine);
    const [action] = mine.actions;
    const verbs: Record<
      string,
      (ids: { run: string; approval: string; action: string }) => Promise<unknown>
    > = {
      showRun: ({ run }) => showRun(api, keys, { tenant: 'theirs', runId: run }),
      explain: ({ run }) => explain(api, { tenant: 'theirs', runId: run }),
      cancel: ({ run }) => cancelRun(api, { tenant: 'theirs', runId: run, subject: 'eve' }),
      showApproval: ({ approval }) => showApproval(api, keys, { tenant: 'theirs', approvalId: approval }),
      approve: ({ approval }) =>
        decide(api, keys, {
          tenant: 'theirs',
          approvalId: approval,
          verdict: 'approve',
          subject: 'eve',
          fingerprint: action?.fingerprint ?? '',
        }),
      reject: ({ approval }) =>
        decide(api, keys, {
          tenant: 'theirs',
          approvalId: approval,
          verdict: 'reject',
          subject: 'eve',
          fingerprint: action?.fingerprint ?? '',
        }),
      revoke: ({ approval }) => revoke(api, { tenant: 'theirs', approvalId: approval, subject: 'eve' }),
      resolve: ({ action: id }) =>
        resolveAction(api, keys, {
          tenant: 'theirs',
          actionId: id,
          verdict: 'succeeded',
          subject: 'eve',
          evidence: 'x',
        }),
    };
    const foreign = { run: mine.id, approval: action?.approvalId ?? '', action: action?.id ?? '' };
    const nowhere = { run: randomUUID(), approval: randomUUID(), action: randomUUID() };
    for (const [verb, ask] of Object.entries(verbs)) {
      const answers = await Promise.all([foreign, nowhere].map((ids) => refusal(ask(ids), ids)));
      expect([verb, answers[0]]).toEqual([verb, answers[1]]);
    }
    const claimed = await claim(admin, { ...mine, tenant: 'theirs' });
    expect(claimed.outcome).toBe('unknown');
    expect(await facts(admin, mine)).toEqual(before);
    expect((await listApprovals(api, { tenant: 'theirs' })).map(({ runId }) => runId)).not.toContain(mine.id);
    expect((await listRuns(api, { tenant: 'theirs' })).map(({ id }) => id)).not.toContain(mine.id);
  });

  it('an empty tenant, or one of blanks, matches nobody’s rows', async () => {
    for (const tenant of ['', ' ', '%', 'mine\u0000'.slice(0, 4).toUpperCase()]) {
      expect(await listRuns(api, { tenant })).toEqual([]);
    }
  });

  /** The error as its reader sees it, with the id that was asked for taken out. */
  async function refusal(answer: Promise<unknown>, ids: Record<string, string>): Promise<string> {
    const error = await answer.then(
      () => new Error('it was answered'),
      (thrown: unknown) => thrown,
    );
    if (!isCountersignError(error)) return String(error);
    return Object.values(ids).reduce((text, id) => text.replaceAll(id, '<id>'), JSON.stringify(error));
  }
});
