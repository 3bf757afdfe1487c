/** What Postgres says about one tenant or one run, row by row, as a login role that sees every row. */
import { type Database, inTransaction, type Queryable } from '../postgres/index.ts';

/** Milliseconds since 1970 by the database's clock, microseconds behind the point. */
export type Moment = number;

export type RunFact = {
  id: string;
  status: string;
  reason: string | null;
  wake: number;
  epoch: number;
  segment: number;
  /** Its hold has passed, and nobody has taken it over. */
  holdPassed: boolean;
};

export type ActionFact = {
  id: string;
  runId: string;
  segment: number;
  path: string;
  tool: string;
  gated: boolean;
  recovery: string;
  state: string;
  reason: string | null;
  attempt: number;
  sealedArguments: Buffer | null;
};

export type ApprovalFact = {
  id: string;
  actionId: string;
  state: string;
  quorum: number;
  /** Distinct people who said yes. */
  yes: number;
  decideBefore: Moment;
  executeBefore: Moment | null;
  sealedReview: Buffer;
};

export type EventFact = { runId: string; n: number; kind: string; data: Record<string, unknown>; at: Moment };
export type ModelCallFact = {
  runId: string;
  segment: number;
  path: string;
  n: number;
  epoch: number;
  at: Moment;
};
export type ReceiptFact = { actionId: string; attempt: number; source: string; outcome: string };
export type OutboxFact = { runId: string; wake: number; sent: boolean; dead: boolean };
export type SessionItemFact = { sessionId: string; position: number; sealed: Buffer };

export type Facts = {
  tenant: string;
  runs: RunFact[];
  actions: ActionFact[];
  approvals: ApprovalFact[];
  /** By run, in order. */
  events: EventFact[];
  receipts: ReceiptFact[];
  modelCalls: ModelCallFact[];
  outbox: OutboxFact[];
  sessionItems: SessionItemFact[];
  /** Events whose number, previous digest or digest is not what it must be. */
  brokenLinks: string[];
  deadLetters: string[];
};

const moment = (column: string) => `(extract(epoch from ${column}) * 1000)::float8`;

/** Parameters of each: tenant; runs, or null for all of them. */
const RUNS = `
  select id, status, reason, wake, epoch, segment,
    coalesce(status = 'running' and held_until < clock_timestamp(), false) as "holdPassed"
  from countersign.runs where tenant = $1 and ($2::uuid[] is null or id = any ($2))`;

const ACTIONS = `
  select id, run_id as "runId", segment, path, tool, gated, recovery, state, reason, attempt, sealed_arguments as "sealedArguments"
  from countersign.actions where tenant = $1 and ($2::uuid[] is null or run_id = any ($2))`;

const APPROVALS = `
  select p.id, p.action_id as "actionId", p.state, p.quorum, ${moment('p.decide_before')} as "decideBefore",
    ${moment('p.execute_before')} as "executeBefore", p.sealed_review as "sealedReview",
    (select count(*)::integer from countersign.votes v
      where v.tenant = p.tenant and v.approval_id = p.id and v.verdict = 'approve') as yes
  from countersign.approvals p where p.tenant = $1 and ($2::uuid[] is null or p.run_id = any ($2))
  order by p.created_at, p.id`;

const EVENTS = `
  select run_id as "runId", n, kind, data, ${moment('at')} as at from countersign.events
  where tenant = $1 and ($2::uuid[] is null or run_id = any ($2)) order by run_id, n`;

const RECEIPTS = `
  select action_id as "actionId", attempt, source, outcome from countersign.receipts
  where tenant = $1 and ($2::uuid[] is null or run_id = any ($2))`;

const MODEL_CALLS = `
  select run_id as "runId", segment, path, n, epoch, ${moment('created_at')} as at from countersign.model_calls
  where tenant = $1 and ($2::uuid[] is null or run_id = any ($2))`;

const OUTBOX = `
  select run_id as "runId", wake, sent_at is not null as sent, dead_at is not null as dead from countersign.outbox
  where tenant = $1 and ($2::uuid[] is null or run_id = any ($2)) order by position`;

const SESSION_ITEMS = `
  select session_id as "sessionId", position, sealed from countersign.session_items
  where tenant = $1 and ($2::uuid[] is null or run_id = any ($2)) order by session_id, position`;

/** Every event's number and digest, recomputed as an auditor would. */
const BROKEN_LINKS = `
  select e.run_id || '#' || e.n as link
  from (select *, row_number() over own as place, lag(digest) over own as before from countersign.events
        where tenant = $1 and ($2::uuid[] is null or run_id = any ($2))
        window own as (partition by run_id order by n)) e
  where e.n <> e.place or e.previous <> coalesce(e.before, '\\x')
     or e.digest <> countersign.event_digest(e.previous, e.tenant, e.run_id, e.n, e.kind, e.data, e.at)`;

const DEAD_LETTERS = `
  select class || ': ' || code as letter from countersign.dead_letters
  where tenant = $1 and ($2::uuid[] is null or run_id = any ($2))`;

/** Parameters: tenant, run. With the runs that it was restarted from and as, which share its ledger rows. */
const FAMILY = `
  with recursive family(id) as (
    select $2::uuid
    union
    select coalesce(e.data ->> 'from', e.data ->> 'new_run')::uuid from family f
    join countersign.events e on e.tenant = $1 and e.run_id = f.id and e.kind in ('run_restarted', 'run_superseded')
    where coalesce(e.data ->> 'from', e.data ->> 'new_run') is not null)
  select id from family`;

/**
 * All rows of one moment, so that they can be compared with each other while the fleet is at work.
 *
 * @param run this one only; default all of the tenant's.
 */
export async function readFacts(db: Database, tenant: string, run: string | null = null): Promise<Facts> {
  return inTransaction(db, async (tx) => {
    await tx.query('set transaction isolation level repeatable read, read only');
    // A login role that row-level security holds back sees this tenant.
    await tx.query('select countersign.as_tenant($1)', [tenant]);
    const family =
      run === null ? null : (await ask<{ id: string }>(tx, FAMILY, [tenant, run])).map(({ id }) => id);
    const read = <Row>(sql: string) => ask<Row>(tx, sql, [tenant, family]);
    const links = await read<{ link: string }>(BROKEN_LINKS);
    const letters = await read<{ letter: string }>(DEAD_LETTERS);
    return {
      tenant,
      runs: await read<RunFact>(RUNS),
      actions: await read<ActionFact>(ACTIONS),
      approvals: await read<ApprovalFact>(APPROVALS),
      events: await read<EventFact>(EVENTS),
      receipts: await read<ReceiptFact>(RECEIPTS),
      modelCalls: await read<ModelCallFact>(MODEL_CALLS),
      outbox: await read<OutboxFact>(OUTBOX),
      sessionItems: await read<SessionItemFact>(SESSION_ITEMS),
      brokenLinks: links.map(({ link }) => link),
      deadLetters: letters.map(({ letter }) => letter),
    };
  });
}

async function ask<Row>(tx: Queryable, sql: string, values: unknown[]): Promise<Row[]> {
  return (await tx.query(sql, values)).rows as Row[];
}
