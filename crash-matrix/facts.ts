/** What Postgres says about one tenant, row by row, as the login role that sees every row. */
import type { Database } from '../src/postgres/index.ts';

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

const RUNS = `
  select id, status, reason, wake, epoch, segment,
    coalesce(status = 'running' and held_until < clock_timestamp(), false) as "holdPassed"
  from countersign.runs where tenant = $1`;

const ACTIONS = `
  select id, run_id as "runId", segment, path, tool, gated, recovery, state, reason, attempt, sealed_arguments as "sealedArguments"
  from countersign.actions where tenant = $1`;

const APPROVALS = `
  select p.id, p.action_id as "actionId", p.state, p.quorum, ${moment('p.decide_before')} as "decideBefore",
    ${moment('p.execute_before')} as "executeBefore", p.sealed_review as "sealedReview",
    (select count(*)::integer from countersign.votes v
      where v.tenant = p.tenant and v.approval_id = p.id and v.verdict = 'approve') as yes
  from countersign.approvals p where p.tenant = $1 order by p.created_at, p.id`;

const EVENTS = `
  select run_id as "runId", n, kind, data, ${moment('at')} as at from countersign.events
  where tenant = $1 order by run_id, n`;

const RECEIPTS =
  'select action_id as "actionId", attempt, source, outcome from countersign.receipts where tenant = $1';

const MODEL_CALLS = `
  select run_id as "runId", segment, path, n, epoch, ${moment('created_at')} as at from countersign.model_calls where tenant = $1`;

const OUTBOX = `
  select run_id as "runId", wake, sent_at is not null as sent, dead_at is not null as dead
  from countersign.outbox where tenant = $1 order by position`;

const SESSION_ITEMS = `
  select session_id as "sessionId", position, sealed from countersign.session_items where tenant = $1
  order by session_id, position`;

/** Every event's number and digest, recomputed as an auditor would. */
const BROKEN_LINKS = `
  select e.run_id || '#' || e.n as link
  from (select *, row_number() over own as place, lag(digest) over own as before from countersign.events
        where tenant = $1 window own as (partition by run_id order by n)) e
  where e.n <> e.place or e.previous <> coalesce(e.before, '\\x')
     or e.digest <> countersign.event_digest(e.previous, e.tenant, e.run_id, e.n, e.kind, e.data, e.at)`;

const DEAD_LETTERS = "select class || ': ' || code as letter from countersign.dead_letters where tenant = $1";

export async function readFacts(admin: Database, tenant: string): Promise<Facts> {
  const ask = async <Row>(sql: string) => (await admin.pool.query(sql, [tenant])).rows as Row[];
  const [runs, actions, approvals, events, receipts, modelCalls, outbox, sessionItems, links, letters] =
    await Promise.all([
      ask<RunFact>(RUNS),
      ask<ActionFact>(ACTIONS),
      ask<ApprovalFact>(APPROVALS),
      ask<EventFact>(EVENTS),
      ask<ReceiptFact>(RECEIPTS),
      ask<ModelCallFact>(MODEL_CALLS),
      ask<OutboxFact>(OUTBOX),
      ask<SessionItemFact>(SESSION_ITEMS),
      ask<{ link: string }>(BROKEN_LINKS),
      ask<{ letter: string }>(DEAD_LETTERS),
    ]);
  return {
    tenant,
    runs,
    actions,
    approvals,
    events,
    receipts,
    modelCalls,
    outbox,
    sessionItems,
    brokenLinks: links.map(({ link }) => link),
    deadLetters: letters.map(({ letter }) => letter),
  };
}
