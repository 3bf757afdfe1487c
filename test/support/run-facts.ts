/** What Postgres says of a run, as the login role sees it: every tenant, for assertions only. */
import type { Database } from '../../src/postgres/index.ts';
import type { SqlRun } from './sql-run.ts';

/** What the rows say. As the login role, which sees every tenant. */
export async function facts(admin: Database, run: SqlRun) {
  const ask = async <Row>(sql: string) => (await admin.pool.query(sql, [run.id])).rows as Row[];
  const [row] = await ask<{
    status: string;
    reason: string | null;
    wake: number;
    epoch: number;
    segment: number;
    holder: string | null;
    held_until: Date | null;
    attempts_in_round: number;
  }>(
    'select status, reason, wake, epoch, segment, holder, held_until, attempts_in_round from countersign.runs where id = $1',
  );
  if (row === undefined) {
    throw new Error('the run does not exist');
  }
  const actions = await ask<{
    id: string;
    state: string;
    reason: string | null;
    attempt: number;
    held_by: string | null;
  }>('select id, state, reason, attempt, held_by from countersign.actions where run_id = $1');
  const approvals = await ask<{ id: string; state: string }>(
    'select id, state from countersign.approvals where run_id = $1',
  );
  const outbox = await ask<{ wake: number }>(
    'select wake from countersign.outbox where run_id = $1 order by position',
  );
  const events = await ask<{ n: number; kind: string; data: Record<string, unknown> }>(
    'select n, kind, data from countersign.events where run_id = $1 order by n',
  );
  return {
    run: row,
    /** In the order in which the run's actions were asked for. */
    actions: run.actions.map((wanted) => {
      const action = actions.find((candidate) => candidate.id === wanted.id);
      if (action === undefined) throw new Error('the action does not exist');
      return { ...action, approval: approvals.find(({ id }) => id === wanted.approvalId)?.state ?? null };
    }),
    outbox: outbox.map(({ wake }) => wake),
    events,
    kinds: events.map(({ kind }) => kind),
  };
}

/** Every event's number and digest recomputed. Returns what is wrong; empty: the chain is whole. */
export async function chainFaults(admin: Database): Promise<string[]> {
  const { rows } = await admin.pool.query<{ fault: string }>(`
    select e.run_id || ' ' || e.n as fault
    from (select *, row_number() over own as place, lag(digest) over own as before from countersign.events
          window own as (partition by tenant, run_id order by n)) e
    where e.n <> e.place or e.previous <> coalesce(e.before, '\\x')
       or e.digest <> countersign.event_digest(e.previous, e.tenant, e.run_id, e.n, e.kind, e.data, e.at)`);
  return rows.map(({ fault }) => fault);
}
