-- Countersign, migration 1: what is remembered.
--
-- Postgres is the only truth. Every tenant table carries its tenant in its key, has row-level security forced, and
-- matches no row while the transaction names no tenant. `workflows`, `workers` and `migrations` describe the fleet,
-- hold no tenant data, and are the only tables without a tenant.
--
-- No index begins with the tenant. To a planner without statistics (before the first ANALYZE of a growing table) any
-- index that does looks as good as the right one, and each look-up would read all rows of the tenant. The price: a list
-- of a small tenant's runs looks through the index of everybody's.
--
-- Rows that are only ever inserted by a function which holds their run's lock (events, journal, receipts, outbox) have
-- no foreign key to it: the check would cost each protocol step a look-up that the lock has already made.
--
-- Words ending in _digest are SHA-256 over RFC 8785 JSON, lower-case hex. Columns named sealed_… or sealed are
-- AES-256-GCM envelopes bound to their row. Versions are integers, never timestamps.

-- Roles are cluster-wide, so another database of the same cluster may have made them already.
do $$
declare
  wanted text;
begin
  foreach wanted in array array['countersign_api', 'countersign_worker', 'countersign_relay', 'countersign_loops'] loop
    begin
      execute format('create role %I nologin', wanted);
    exception when duplicate_object or unique_violation then null;
    end;
    begin
      -- Set, but where the server can tell the two apart (16), not inherited: the loops' policies show every tenant, and
      -- the login that migrates must not see more than it asks for.
      execute format('grant %I to current_user', wanted)
        || case when wanted = 'countersign_loops' and current_setting('server_version_num')::integer >= 160000
           then ' with inherit false' else '' end;
    exception when unique_violation or invalid_grant_operation or duplicate_object then null;
    end;
  end loop;
end
$$;

comment on schema countersign is 'Countersign: human-approved agent actions, carried to exactly one effect.';

-- Closed sets of words are domains: their check is read once per session, and applied to what is written. A CHECK of the
-- table is read again by each statement that writes to it, whatever it writes; those below compare columns.
create domain run_status as text constraint "a run is in a known status" check (value in (
  'ready', 'running', 'awaiting_approval', 'awaiting_reconciliation', 'parked',
  'completed', 'failed', 'cancelled', 'superseded', 'quarantined', 'dead_lettered'));
create domain action_state as text constraint "an action is in a known state" check (value in (
  'prepared', 'dispatched', 'outcome_unknown', 'succeeded', 'failed', 'not_executed', 'abandoned'));
create domain recovery_kind as text constraint "a recovery kind is one of four"
  check (value in ('transactional', 'idempotent', 'lookup', 'manual'));
create domain reissue_kind as text constraint "sending again is automatic or a person's matter" check (value in ('automatic', 'by_person'));
create domain evidence_source as text constraint "evidence comes from one of four sources"
  check (value in ('worker', 'transaction', 'lookup', 'person'));
create domain evidence_outcome as text constraint "evidence says one of eight things"
  check (value in ('succeeded', 'failed', 'never_sent', 'unknown', 'absent', 'different', 'cannot_say', 'abandoned'));
create domain approval_state as text constraint "an approval is in a known state" check (value in (
  'pending', 'approved', 'consumed', 'rejected', 'expired', 'revoked', 'superseded', 'invalidated'));
create domain quorum_size as integer constraint "a quorum is 1 to 16 people" check (value between 1 and 16);

create table tenants (
  id text primary key
    constraint "a tenant has a name of 1 to 512 characters" check (length(id) between 1 and 512),
  created_at timestamptz not null default clock_timestamp()
);
comment on table tenants is 'Isolation boundaries. A row appears with the tenant''s first run. Nothing refers to it: a caller''s open
transaction that starts a run must keep no other start of its tenant waiting.';

create table workflows (
  name text not null,
  version text not null,
  announced_at timestamptz not null default clock_timestamp(),
  primary key (name, version)
);
comment on table workflows is 'Every (name, version) that some worker has ever announced: what start may name.';

create table workers (
  id uuid primary key,
  kind text not null constraint "a worker process is a resume worker or a reconciler" check (kind in ('resume', 'reconciler')),
  name text not null,
  workflows text[] not null,
  state_schemas text[] not null,
  tools text[] not null,
  started_at timestamptz not null default clock_timestamp(),
  alive_until timestamptz not null,
  stopped_at timestamptz
);
comment on table workers is 'Who is alive and what it can carry. The claim and settle_run_status compare runs with it.';
comment on column workers.workflows is 'name@version of each workflow it has loaded.';
comment on column workers.tools is 'Manifest digests of every action() tool it has loaded.';

create table sessions (
  tenant text not null,
  id text not null constraint "a session has an id of 1 to 512 characters" check (length(id) between 1 and 512),
  version integer not null default 0,
  operations jsonb not null default '{}',
  created_at timestamptz not null default clock_timestamp(),
  primary key (id, tenant)
);
comment on table sessions is 'Conversations that outlive a run. Written only by the transaction that pauses or ends its one active run.';
comment on column sessions.version is 'Grows with every change of the items; a run goes on only from the version it left.';
comment on column sessions.operations is 'Digests of the latest history transactions by operation id: repeating one changes nothing.';

create table session_items (
  tenant text not null,
  session_id text not null,
  position integer not null,
  sealed bytea not null,
  run_id uuid not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (session_id, position, tenant),
  foreign key (tenant, session_id) references sessions (tenant, id)
);
comment on table session_items is 'A session''s history in order, from position 0.';

create table runs (
  tenant text not null,
  id uuid not null,
  workflow text not null,
  version text not null,
  status run_status not null,
  reason text,
  wake integer not null default 0,
  epoch integer not null default 0,
  segment integer not null default 0,
  holder uuid,
  held_until timestamptz,
  attempts_in_round integer not null default 0,
  claims_in_segment integer not null default 0,
  round integer not null default 1,
  state_schema text not null,
  manifest text[] not null default '{}',
  client_key text,
  input_digest text not null,
  requested_by text not null,
  session_id text,
  session_slot text,
  session_version integer,
  cancel_requested_at timestamptz,
  sealed_output bytea,
  usage jsonb not null default '{}',
  created_at timestamptz not null default clock_timestamp(),
  changed_at timestamptz not null default clock_timestamp(),
  looked_at timestamptz not null default clock_timestamp(),
  ended_at timestamptz,
  primary key (id, tenant),
  foreign key (tenant, session_id) references sessions (tenant, id),
  constraint "a client key starts one run" unique (client_key, tenant),
  constraint "an active run on a session holds its slot" check (session_slot is not distinct from
    case when status in ('completed', 'failed', 'cancelled', 'superseded', 'dead_lettered') then null else session_id end),
  constraint "a running run is held, and no other" check
    ((status = 'running') = (held_until is not null) and (holder is null) = (held_until is null)),
  constraint "an ended run says when" check
    ((status in ('completed', 'failed', 'cancelled', 'superseded')) = (ended_at is not null)),
  constraint "a completed run has its output" check (status <> 'completed' or sealed_output is not null)
) with (fillfactor = 70);
comment on table runs is 'One execution of a workflow. Waiting statuses are written by settle_run_status alone.';
comment on column runs.reason is 'A stable code for why it waits or ended; never data.';
comment on column runs.wake is 'Grows whenever the run becomes ready; named by the job; not changed by the claim.';
comment on column runs.epoch is 'Grows with each claim: the fence. Compared on the locked row.';
comment on column runs.segment is 'Number of the checkpoint the run goes on from.';
comment on column runs.held_until is 'Until when its holder alone may work on it, by this database''s clock.';
comment on column runs.attempts_in_round is 'Claims since the last committed progress or replay.';
comment on column runs.state_schema is 'What a worker must be able to read to open the current checkpoint.';
comment on column runs.session_slot is 'The session it is active on; free again when it ends or is given up.';
comment on column runs.manifest is 'Digests of the tools whose actions are open at the current checkpoint.';
comment on column runs.looked_at is 'When a sweep last looked at it; infinity while only a person may move it.';
-- The indexes of this table stand on columns that a claim does not change, so that a claim updates in place (HOT).
create unique index "a session has one active run" on runs (session_slot, tenant) where session_slot is not null;
create index runs_to_sweep on runs (looked_at) where ended_at is null;
create index runs_by_age on runs (created_at desc, id);
create index runs_of_session on runs (session_id, tenant) where session_id is not null;

create table checkpoints (
  tenant text not null,
  run_id uuid not null,
  number integer not null,
  sealed bytea not null,
  state_schema text not null,
  epoch integer not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (run_id, number, tenant),
  foreign key (tenant, run_id) references runs (tenant, id)
);
comment on table checkpoints is 'Immutable. Number 0 is the sealed input; N is the RunState at the N-th pause.';

create table model_calls (
  tenant text not null,
  run_id uuid not null,
  segment integer not null,
  path text not null,
  n integer not null,
  request_digest text not null,
  sealed bytea not null,
  usage jsonb not null,
  epoch integer not null,
  created_at timestamptz not null default clock_timestamp(),
  take integer not null default 0,
  superseded_at timestamptz,
  primary key (run_id, segment, path, n, take, tenant),
  constraint "the current answer is take 0" check ((superseded_at is null) = (take = 0))
);
comment on table model_calls is 'The journal: each model response, stored before the runner acts on it.';
comment on column model_calls.path is 'Chain of parent call ids, joined by /; empty for the outer agent.';
comment on column model_calls.n is 'Order within the path, from 0.';
comment on column model_calls.superseded_at is 'When a replay asked something else here and nothing after it had been sent; kept for the record.';
comment on column model_calls.take is '0 for the answer that counts; the superseding epoch for one that does not any more.';

create table tool_results (
  tenant text not null,
  run_id uuid not null,
  segment integer not null,
  call_id text not null,
  tool text not null,
  sealed bytea not null,
  epoch integer not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (run_id, call_id, tenant)
);
comment on table tool_results is 'Results of plain tools, so that a replayed segment sees what it saw. The tools themselves run at least once.';

create table actions (
  tenant text not null,
  id uuid not null,
  run_id uuid not null,
  segment integer not null,
  path text not null,
  call_id text not null,
  tool text not null,
  tool_version text not null,
  gated boolean not null,
  recovery recovery_kind not null,
  state action_state not null,
  reason text,
  attempt integer not null default 0,
  attempt_budget integer not null,
  proposed_digest text not null,
  effective_digest text,
  operation_digest text,
  sealed_arguments bytea,
  sealed_result bytea,
  held_by uuid,
  send_within_ms integer not null,
  call_timeout_ms integer not null,
  settles_within_ms integer,
  key_lifetime_ms bigint,
  reissue reissue_kind not null default 'by_person',
  first_dispatched_at timestamptz,
  dispatched_at timestamptz,
  deadline_at timestamptz,
  absent_after timestamptz,
  reconcile_after timestamptz,
  reconcile_tries integer not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  settled_at timestamptz,
  primary key (id, tenant),
  constraint "a call id names its action" check (call_id = 'call_' || id),
  foreign key (tenant, run_id) references runs (tenant, id),
  constraint "an action out in the world has a deadline" check
    (state not in ('dispatched', 'outcome_unknown') or (attempt > 0 and deadline_at is not null)),
  constraint "an action never sent has no attempt to be unsure of" check (state <> 'abandoned' or attempt > 0),
  constraint "not executed says why" check (state <> 'not_executed' or reason is not null),
  constraint "an action that may run has arguments" check
    (state = 'not_executed' or (effective_digest is not null and sealed_arguments is not null)),
  constraint "a settled action has what the model is told" check
    (state not in ('succeeded', 'failed', 'abandoned') or sealed_result is not null)
);
comment on table actions is 'The ledger: one row per consequential tool call. The id is the operation key.';
comment on column actions.id is 'The operation key: minted with the stored model response, sent to the provider, never changed.';
comment on column actions.proposed_digest is 'Of the arguments as the model wrote them: what the state must say.';
comment on column actions.effective_digest is 'Of the arguments after the schema: what was reviewed and what runs.';
comment on column actions.operation_digest is 'Over tenant, tool, target and effective arguments: "the same operation".';
comment on column actions.held_by is 'An identical action whose outcome is open; this one waits for it.';
comment on column actions.absent_after is 'A look-up that started after this may prove that the latest attempt never arrived.';
-- Two identical operations can never be in the open at once, whoever asks.
create unique index "an operation is in the open once" on actions (operation_digest, tenant)
  where state in ('dispatched', 'outcome_unknown');
create index actions_by_operation on actions (operation_digest);
create index actions_to_reconcile on actions (reconcile_after) where state in ('dispatched', 'outcome_unknown');
create index actions_of_run on actions (run_id, segment);

create table receipts (
  tenant text not null,
  id uuid not null,
  action_id uuid not null,
  run_id uuid not null,
  attempt integer not null,
  source evidence_source not null,
  outcome evidence_outcome not null,
  sealed bytea,
  received_at timestamptz not null default clock_timestamp(),
  primary key (id, tenant)
);
comment on table receipts is 'Evidence about an attempt, kept from whoever holds it, whatever the epoch. Never updated.';
create index receipts_of_action on receipts (action_id);

create table approvals (
  tenant text not null,
  id uuid not null,
  run_id uuid not null,
  checkpoint integer not null,
  action_id uuid not null,
  state approval_state not null,
  policy text not null,
  policy_version integer not null default 1,
  quorum quorum_size not null,
  fingerprint text not null,
  sealed_review bytea not null,
  decide_before timestamptz not null,
  execute_within_ms bigint not null,
  execute_before timestamptz,
  lapses_at timestamptz generated always as
    (case state when 'pending' then decide_before when 'approved' then execute_before end) stored,
  decided_by text,
  decided_at timestamptz,
  sealed_words bytea,
  created_at timestamptz not null default clock_timestamp(),
  primary key (id, tenant),
  foreign key (tenant, action_id) references actions (tenant, id),
  foreign key (tenant, run_id, checkpoint) references checkpoints (tenant, run_id, number),
  constraint "a decision names who and when" check
    (state in ('pending', 'expired', 'superseded', 'invalidated') or (decided_by is not null and decided_at is not null)),
  constraint "an approved action has a last moment" check
    (state not in ('approved', 'consumed') or execute_before is not null)
);
comment on table approvals is 'The request for a person''s word on one action, and what became of it.';
comment on column approvals.fingerprint is 'What a decision binds to; see fingerprint_of().';
comment on column approvals.lapses_at is 'While it is open: when it no longer is. Null: it is closed.';
comment on column approvals.sealed_review is 'The review snapshot: what the reviewer was shown. Immutable.';
comment on column approvals.sealed_words is 'The reviewer''s words; on a rejection the model is told them.';
create unique index "an action has one open approval" on approvals (action_id, tenant)
  where state in ('pending', 'approved', 'consumed');
create index approvals_of_run on approvals (run_id);
create index approvals_of_action on approvals (action_id);
-- Not "where state = 'pending'": statistics of a quiet moment would make that index look like the cheapest way to any
-- pending approval.
create index approvals_to_lapse on approvals (lapses_at) where lapses_at is not null;

create table votes (
  tenant text not null,
  approval_id uuid not null,
  subject text not null constraint "a voter has a name of 1 to 512 characters" check (length(subject) between 1 and 512),
  id uuid not null,
  verdict text not null constraint "a vote is for or against" check (verdict in ('approve', 'reject')),
  fingerprint text not null,
  cast_at timestamptz not null default clock_timestamp(),
  primary key (approval_id, subject, tenant),
  foreign key (tenant, approval_id) references approvals (tenant, id)
);
comment on table votes is 'One person''s word. The transition is the approval''s; votes are many.';

create table outbox (
  id uuid primary key default gen_random_uuid(),
  position bigint generated always as identity,
  tenant text not null,
  run_id uuid not null,
  wake integer not null,
  available_at timestamptz not null default clock_timestamp(),
  claimed_until timestamptz,
  claim_token uuid,
  sent_at timestamptz,
  failures integer not null default 0,
  dead_at timestamptz,
  dead_reason text,
  created_at timestamptz not null default clock_timestamp(),
  constraint "a row is sent or dead, not both" check (sent_at is null or dead_at is null)
);
comment on table outbox is 'Resume announcements, committed with the state that caused them. The id is the job''s id.';
comment on column outbox.position is 'Order of a run''s rows: they are inserted under the run''s lock. Never a cursor.';
create index outbox_to_send on outbox (position) where sent_at is null and dead_at is null;
create index outbox_of_run on outbox (run_id, position);

create table events (
  tenant text not null,
  run_id uuid not null,
  n integer not null,
  kind text not null,
  data jsonb not null,
  at timestamptz not null,
  previous bytea not null,
  digest bytea not null,
  primary key (run_id, n, tenant)
);
comment on table events is 'What happened, gapless per run, written in the transition''s own transaction, hash-chained. Ids and codes only.';

create table dead_letters (
  tenant text not null,
  id uuid not null default gen_random_uuid(),
  run_id uuid not null,
  round integer not null,
  class text not null constraint "a dead letter is of a known class"
    check (class in ('transient_exhausted', 'permanent', 'stalled', 'poison', 'incompatible', 'diverged')),
  code text not null,
  created_at timestamptz not null default clock_timestamp(),
  replayed_at timestamptz,
  replayed_by text,
  replay_reason text,
  primary key (id, tenant),
  foreign key (tenant, run_id) references runs (tenant, id),
  constraint "a run has one dead letter per round" unique (run_id, round, tenant)
);
comment on table dead_letters is 'A run''s work given up with a reason. Only a named person puts it back.';

-- Row-level security: forced on the owner too, and false while no tenant is named (an unset setting is null or '').
do $$
declare
  named text;
begin
  foreach named in array array['sessions', 'session_items', 'runs', 'checkpoints', 'model_calls', 'tool_results', 'actions',
                               'receipts', 'approvals', 'votes', 'outbox', 'events', 'dead_letters'] loop
    execute format('alter table %I enable row level security', named);
    execute format('alter table %I force row level security', named);
    execute format('create policy "only the named tenant" on %I using (tenant = nullif(current_setting(''countersign.tenant'', true), ''''))', named);
  end loop;
end
$$;
alter table tenants enable row level security;
alter table tenants force row level security;
create policy "only the named tenant" on tenants using (id = nullif(current_setting('countersign.tenant', true), ''));

-- The cross-tenant loops (relay, sweep, reconcile, heartbeat) run as countersign_loops inside SECURITY DEFINER
-- functions, and may read ids, states and times only: no sealed column is granted to it.
create policy "loops see ids" on runs for select to countersign_loops using (true);
create policy "loops renew holds" on runs for update to countersign_loops using (true);
create policy "loops see ids" on actions for select to countersign_loops using (true);
create policy "loops lease actions" on actions for update to countersign_loops using (true);
create policy "loops see ids" on approvals for select to countersign_loops using (true);
create policy "loops publish" on outbox for all to countersign_loops using (true);
