import { CountersignError } from '../errors.ts';
import { type Database, readAsTenant } from '../postgres/index.ts';
import { isUuid } from '../uuid.ts';
import { type EventRow, sentenceOf } from './sentences.ts';

/** What the ledger knows about one effect. `unknown` is a state of the world, not of this report. */
export type ExplainedAction = {
  id: string;
  tool: string;
  state: string;
  attempt: number;
  happened: 'yes' | 'no' | 'unknown';
  /** In plain words, with the evidence. */
  why: string;
};

/** A run in plain words, from Postgres alone: no key, no queue, no provider is needed. */
export type Explanation = {
  runId: string;
  status: string;
  /** Event by event, in order. */
  happened: string[];
  /** What is proven. */
  known: string[];
  /** What is not. */
  unknown: string[];
  /** What is safe to do next, and what the system does by itself. */
  next: string[];
  actions: ExplainedAction[];
  /** All of it, as a page. */
  text: string;
};

type RunRow = {
  id: string;
  workflow: string;
  version: string;
  status: string;
  reason: string | null;
  wake: number;
  held_ms: number | null;
  attempts_in_round: number;
  parked_times: number;
  cancelling: boolean;
  unsent: number;
  dead: number;
  capable: number;
};

type ActionRow = {
  id: string;
  tool: string;
  state: string;
  reason: string | null;
  attempt: number;
  recovery: string;
  reissue: string;
  gated: boolean;
  approval: string | null;
  decided_by: string | null;
  evidence: string[] | null;
  due_ms: number | null;
  contradicted: boolean;
};

/** parameter: run id. Zero rows: no such run of this tenant. */
const RUN = `
  select r.id, r.workflow, r.version, r.status, r.reason, r.wake, r.attempts_in_round, r.parked_times, r.cancel_requested_at is not null as cancelling,
    floor(extract(epoch from r.held_until - clock_timestamp()) * 1000)::integer as held_ms,
    (select count(*)::integer from countersign.outbox o where o.tenant = r.tenant and o.run_id = r.id and o.sent_at is null and o.dead_at is null) as unsent,
    (select count(*)::integer from countersign.outbox o where o.tenant = r.tenant and o.run_id = r.id and o.dead_at is not null) as dead,
    (select count(*)::integer from countersign.workers w where w.kind = 'resume' and w.stopped_at is null and w.alive_until > clock_timestamp()
      and r.workflow || '@' || r.version = any (w.workflows)) as capable
  from countersign.runs r where r.id = $1`;

/** parameter: run id. In the order they were asked for. */
const ACTIONS = `
  select a.id, a.tool, a.state, a.reason, a.attempt, a.recovery, a.reissue, a.gated, p.state as approval, p.decided_by,
    floor(extract(epoch from a.reconcile_after - clock_timestamp()) * 1000)::integer as due_ms,
    (select array_agg(e.source || ' says ' || e.outcome || ' (attempt ' || e.attempt || case when e.times > 1 then ', ' || e.times || ' times' else '' end || ')' order by e.since)
      from (select t.source, t.outcome, t.attempt, count(*) as times, min(t.received_at) as since from countersign.receipts t
        where t.tenant = a.tenant and t.action_id = a.id group by 1, 2, 3) e) as evidence,
    exists (select 1 from countersign.events v where v.tenant = a.tenant and v.run_id = a.run_id
      and v.kind = 'contradiction' and v.data ->> 'action' = a.id::text) as contradicted
  from countersign.actions a
  left join lateral (select q.state, q.decided_by from countersign.approvals q where q.tenant = a.tenant and q.action_id = a.id
    order by q.created_at desc limit 1) p on true
  where a.run_id = $1 order by a.created_at, a.id`;

/** parameter: run id. */
const EVENTS = 'select n, kind, data, at from countersign.events where run_id = $1 order by n';

/**
 * Says what happened to a run, what is known, what is not, and what is safe to do next.
 *
 * @throws RUN_NOT_FOUND
 */
export async function explain(
  db: Database,
  options: { tenant: string; runId: string },
): Promise<Explanation> {
  const { tenant, runId } = options;
  const found = isUuid(runId)
    ? await readAsTenant(db, tenant, async (tx) => ({
        run: (await tx.query(RUN, [runId])).rows[0] as RunRow | undefined,
        actions: (await tx.query(ACTIONS, [runId])).rows as ActionRow[],
        events: (await tx.query(EVENTS, [runId])).rows as EventRow[],
      }))
    : undefined;
  if (found?.run === undefined) {
    throw new CountersignError('RUN_NOT_FOUND', 'No such run; "countersign runs" lists yours.', {
      details: { runId: runId.slice(0, 64) },
    });
  }
  const actions = found.actions.map(explainAction);
  const explanation = {
    runId: found.run.id,
    status: found.run.status,
    happened: found.events.map(sentenceOf),
    known: actions.filter((action) => action.happened !== 'unknown').map((action) => action.why),
    unknown: actions.filter((action) => action.happened === 'unknown').map((action) => action.why),
    next: nextSteps(found.run, found.actions),
    actions,
  };
  return { ...explanation, text: asPage(found.run, explanation) };
}

function explainAction(row: ActionRow): ExplainedAction {
  const name = `${row.tool} (key ${row.id})`;
  const evidence = row.evidence === null ? '' : ` Evidence: ${row.evidence.join('; ')}.`;
  const warning = row.contradicted
    ? ' CONTRADICTION: evidence disagrees; a person must compare it with the provider.'
    : '';
  const say = (happened: ExplainedAction['happened'], sentence: string): ExplainedAction => ({
    id: row.id,
    tool: row.tool,
    state: row.state,
    attempt: row.attempt,
    happened: row.contradicted && happened === 'no' ? 'unknown' : happened,
    why: `${sentence}${evidence}${warning}`,
  });
  switch (row.state) {
    case 'succeeded':
      return say('yes', `${name} took effect: attempt ${row.attempt} has its receipt.`);
    case 'failed':
      return say('no', `${name} did not take effect: the provider refused it.`);
    case 'not_executed':
      return say(
        'no',
        `${name} was not executed (${row.reason}); ${row.attempt === 0 ? 'nothing was ever sent' : `${row.attempt} earlier attempt(s) were proven not to have happened`}.`,
      );
    case 'abandoned':
      return say('unknown', `${name} was closed by a person without proof.`);
    case 'prepared':
      return say(
        'no',
        `${name} has not been executed yet${row.approval === null ? '' : ` (approval ${row.approval}${row.decided_by === null ? '' : ` by ${row.decided_by}`})`}${row.attempt === 0 ? '' : `; ${row.attempt} earlier attempt(s) were proven not to have happened`}.`,
      );
    case 'dispatched':
      return say(
        'unknown',
        `${name} may be happening right now: attempt ${row.attempt} was sent and is not settled.`,
      );
    default:
      return say(
        'unknown',
        `${name} may or may not have taken effect: attempt ${row.attempt} was sent and no proof came back (${row.reason ?? 'no answer'}).`,
      );
  }
}

/** What the system does by itself, and what only a person may do. */
function nextSteps(run: RunRow, actions: ActionRow[]): string[] {
  const steps = statusSteps(run);
  for (const action of actions) {
    if (action.state !== 'dispatched' && action.state !== 'outcome_unknown') {
      continue;
    }
    steps.push(`${action.tool} (key ${action.id}): ${openActionStep(action)} Do not start it again by hand.`);
  }
  if (run.dead > 0) {
    steps.push(
      'An announcement of this run could not be published and is dead; an operator must look at the outbox.',
    );
  }
  return steps;
}

function openActionStep(action: ActionRow): string {
  if (action.state === 'outcome_unknown' && action.due_ms === null) {
    const ask =
      action.recovery === 'lookup'
        ? ` Or, once the provider can be asked again, "countersign actions ask ${action.id}".`
        : '';
    return `nothing more can be done by machine: a named person must look at the provider and record the outcome with "countersign actions resolve ${action.id} --attempt ${action.attempt} …".${ask}`;
  }
  const due =
    action.due_ms === null || action.due_ms <= 0 ? 'now' : `in ${Math.ceil(action.due_ms / 1000)} s`;
  switch (action.recovery) {
    case 'idempotent':
      return `a worker sends it again under the same key (due ${due}); the provider makes that one effect.`;
    case 'lookup':
      return `the reconciler asks the provider (due ${due}); ${action.reissue === 'automatic' ? 'if it is proven absent it is sent again under the same key' : 'if it is absent, a person must decide whether to send it again'}.`;
    case 'transactional':
      return 'it commits together with its receipt or not at all; the next claim reads which.';
    default:
      return 'its outcome cannot be asked by machine: past its deadline, a named person must look at the provider.';
  }
}

function statusSteps(run: RunRow): string[] {
  switch (run.status) {
    case 'completed':
    case 'failed':
    case 'cancelled':
    case 'superseded':
      return [
        `Nothing: the run has ended (${run.status}${run.reason === null ? '' : `, ${run.reason}`}). Delivering its job again is harmless.`,
      ];
    case 'awaiting_approval':
      return ['A person must decide: see "countersign approvals". Nothing is sent before that.'];
    case 'awaiting_reconciliation':
      return [
        `The run waits until the open outcome is proven${run.cancelling ? '; it is being cancelled and ends then' : ''}.`,
      ];
    case 'ready':
      return [
        `A worker will claim it (wake ${run.wake}${run.unsent > 0 ? ', its announcement is about to be published' : ', announced'}). ${run.capable === 0 ? 'No live worker can carry it right now: start one.' : ''}`.trim(),
      ];
    case 'running':
      return [
        (run.held_ms ?? 0) > 0
          ? `A worker holds it for another ${Math.ceil((run.held_ms ?? 0) / 1000)} s unless it renews; wait.`
          : 'Its worker has gone silent and the hold has passed: the sweep announces it again and another worker goes on from the checkpoint.',
      ];
    case 'parked':
      return [
        run.reason === 'NO_CAPABLE_WORKER'
          ? `No live worker can carry ${run.workflow}@${run.version}; start one and the run goes on by itself. Approvals stay valid until their deadline.`
          : `A worker could not carry it (${run.reason}), ${run.parked_times} time(s) in a row, and no attempt was spent. Put that right: it is tried again as soon as a worker starts, and by itself after waits that grow to 10 minutes.`,
      ];
    case 'quarantined':
      return [
        `Damaged or changed (${run.reason}): nothing runs until a named operator has looked. No automatic retry will touch it.`,
      ];
    default:
      return [
        `Given up after ${run.attempts_in_round} attempt(s) (${run.reason}): a named operator replays or cancels it. Effects already proven are not repeated by a replay.`,
      ];
  }
}

function asPage(run: RunRow, explained: Omit<Explanation, 'text'>): string {
  const part = (title: string, lines: string[]) =>
    lines.length === 0 ? [] : ['', title, ...lines.map((line) => `  ${line}`)];
  return [
    `Run ${run.id} of ${run.workflow}@${run.version} is ${run.status}${run.reason === null ? '' : ` (${run.reason})`}.`,
    ...part('What happened', explained.happened),
    ...part('What is known', explained.known),
    ...part('What is not known', explained.unknown),
    ...part('What is safe to do next', explained.next),
  ].join('\n');
}
