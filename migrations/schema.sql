-- The schema after all migrations, read from the catalogs of Postgres 18. Not for running.
-- Written by "npm run schema"; test/migrations/schema.test.ts fails when it is stale.

-- Tables

table actions
  -- The ledger: one row per consequential tool call. The id is the operation key.
  tenant text not null
  id uuid not null  -- The operation key: minted with the stored model response, sent to the provider, never changed.
  run_id uuid not null
  segment integer not null
  path text not null
  call_id text not null
  tool text not null
  tool_version text not null
  gated boolean not null
  recovery recovery_kind not null
  state action_state not null
  reason text
  attempt integer not null default 0
  attempt_budget integer not null
  proposed_digest text not null  -- Of the arguments as the model wrote them: what the state must say.
  effective_digest text  -- Of the arguments after the schema: what was reviewed and what runs.
  operation_digest text  -- Over tenant, tool, target and effective arguments: "the same operation".
  sealed_arguments bytea
  sealed_result bytea
  held_by uuid  -- An identical action whose outcome is open; this one waits for it.
  send_within_ms integer not null
  call_timeout_ms integer not null
  settles_within_ms integer
  key_lifetime_ms bigint
  reissue reissue_kind not null default 'by_person'::text
  first_dispatched_at timestamp with time zone
  dispatched_at timestamp with time zone
  deadline_at timestamp with time zone
  absent_after timestamp with time zone  -- A look-up that started after this may prove that the latest attempt never arrived.
  reconcile_after timestamp with time zone
  reconcile_tries integer not null default 0
  created_at timestamp with time zone not null default clock_timestamp()
  settled_at timestamp with time zone
  constraint "a call id names its action" CHECK ((call_id = ('call_'::text || id)))
  constraint "a settled action has what the model is told" CHECK ((((state)::text <> ALL (ARRAY['succeeded'::text, 'failed'::text, 'abandoned'::text])) OR (sealed_result IS NOT NULL)))
  constraint actions_pkey PRIMARY KEY (id, tenant)
  constraint actions_tenant_run_id_fkey FOREIGN KEY (tenant, run_id) REFERENCES runs(tenant, id)
  constraint "an action never sent has no attempt to be unsure of" CHECK ((((state)::text <> 'abandoned'::text) OR (attempt > 0)))
  constraint "an action out in the world has a deadline" CHECK ((((state)::text <> ALL (ARRAY['dispatched'::text, 'outcome_unknown'::text])) OR ((attempt > 0) AND (deadline_at IS NOT NULL))))
  constraint "an action that may run has arguments" CHECK ((((state)::text = 'not_executed'::text) OR ((effective_digest IS NOT NULL) AND (sealed_arguments IS NOT NULL))))
  constraint "not executed says why" CHECK ((((state)::text <> 'not_executed'::text) OR (reason IS NOT NULL)))
  CREATE UNIQUE INDEX "an operation is in the open once" ON actions USING btree (operation_digest, tenant) WHERE ((state)::text = ANY (ARRAY['dispatched'::text, 'outcome_unknown'::text]))
  CREATE INDEX actions_by_operation ON actions USING btree (operation_digest)
  CREATE INDEX actions_of_run ON actions USING btree (run_id, segment)
  CREATE INDEX actions_to_reconcile ON actions USING btree (reconcile_after) WHERE ((state)::text = ANY (ARRAY['dispatched'::text, 'outcome_unknown'::text]))
  row level security, forced
  policy "loops lease actions" for w to countersign_loops using (true)
  policy "loops see ids" for r to countersign_loops using (true)
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table approvals
  -- The request for a person's word on one action, and what became of it.
  tenant text not null
  id uuid not null
  run_id uuid not null
  checkpoint integer not null
  action_id uuid not null
  state approval_state not null
  policy text not null
  policy_version integer not null default 1
  quorum quorum_size not null
  fingerprint text not null  -- What a decision binds to; see fingerprint_of().
  sealed_review bytea not null  -- The review snapshot: what the reviewer was shown. Immutable.
  decide_before timestamp with time zone not null
  execute_within_ms bigint not null
  execute_before timestamp with time zone
  lapses_at timestamp with time zone default 
CASE state
    WHEN 'pending'::text THEN decide_before
    WHEN 'approved'::text THEN execute_before
    ELSE NULL::timestamp with time zone
END  -- While it is open: when it no longer is. Null: it is closed.
  decided_by text
  decided_at timestamp with time zone
  sealed_words bytea  -- The reviewer's words; on a rejection the model is told them.
  created_at timestamp with time zone not null default clock_timestamp()
  constraint "a decision names who and when" CHECK ((((state)::text = ANY (ARRAY['pending'::text, 'expired'::text, 'superseded'::text, 'invalidated'::text])) OR ((decided_by IS NOT NULL) AND (decided_at IS NOT NULL))))
  constraint "an approved action has a last moment" CHECK ((((state)::text <> ALL (ARRAY['approved'::text, 'consumed'::text])) OR (execute_before IS NOT NULL)))
  constraint approvals_pkey PRIMARY KEY (id, tenant)
  constraint approvals_tenant_action_id_fkey FOREIGN KEY (tenant, action_id) REFERENCES actions(tenant, id)
  constraint approvals_tenant_run_id_checkpoint_fkey FOREIGN KEY (tenant, run_id, checkpoint) REFERENCES checkpoints(tenant, run_id, number)
  CREATE UNIQUE INDEX "an action has one open approval" ON approvals USING btree (action_id, tenant) WHERE ((state)::text = ANY (ARRAY['pending'::text, 'approved'::text, 'consumed'::text]))
  CREATE INDEX approvals_of_action ON approvals USING btree (action_id)
  CREATE INDEX approvals_of_run ON approvals USING btree (run_id)
  CREATE INDEX approvals_to_lapse ON approvals USING btree (lapses_at) WHERE (lapses_at IS NOT NULL)
  row level security, forced
  policy "loops see ids" for r to countersign_loops using (true)
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table checkpoints
  -- Immutable. Number 0 is the sealed input; N is the RunState at the N-th pause.
  tenant text not null
  run_id uuid not null
  number integer not null
  sealed bytea not null
  state_schema text not null
  epoch integer not null
  created_at timestamp with time zone not null default clock_timestamp()
  constraint checkpoints_pkey PRIMARY KEY (run_id, number, tenant)
  constraint checkpoints_tenant_run_id_fkey FOREIGN KEY (tenant, run_id) REFERENCES runs(tenant, id)
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table dead_letters
  -- A run's work given up with a reason. Only a named person puts it back.
  tenant text not null
  id uuid not null default gen_random_uuid()
  run_id uuid not null
  round integer not null
  class text not null
  code text not null
  created_at timestamp with time zone not null default clock_timestamp()
  replayed_at timestamp with time zone
  replayed_by text
  replay_reason text
  closed_as text  -- How a person's replay found it; null while it is open.
  constraint "a dead letter is closed as one of three" CHECK ((closed_as = ANY (ARRAY['replayed'::text, 'already_done'::text, 'cancelled'::text])))
  constraint "a dead letter is of a known class" CHECK ((class = ANY (ARRAY['transient_exhausted'::text, 'permanent'::text, 'stalled'::text, 'poison'::text, 'incompatible'::text, 'diverged'::text])))
  constraint "a run has one dead letter per round" UNIQUE (run_id, round, tenant)
  constraint dead_letters_pkey PRIMARY KEY (id, tenant)
  constraint dead_letters_tenant_run_id_fkey FOREIGN KEY (tenant, run_id) REFERENCES runs(tenant, id)
  CREATE INDEX dead_letters_open ON dead_letters USING btree (class) WHERE (closed_as IS NULL)
  row level security, forced
  policy "loops see ids" for r to countersign_loops using (true)
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table events
  -- What happened, gapless per run, written in the transition's own transaction, hash-chained. Ids and codes only.
  tenant text not null
  run_id uuid not null
  n integer not null
  kind text not null
  data jsonb not null
  at timestamp with time zone not null
  previous bytea not null
  digest bytea not null
  constraint events_pkey PRIMARY KEY (run_id, n, tenant)
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table migrations
  number integer not null
  name text not null
  digest text not null
  applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (number)

table model_calls
  -- The journal: each model response, stored before the runner acts on it.
  tenant text not null
  run_id uuid not null
  segment integer not null
  path text not null  -- Chain of parent call ids, joined by /; empty for the outer agent.
  n integer not null  -- Order within the path, from 0.
  request_digest text not null
  sealed bytea not null
  usage jsonb not null
  epoch integer not null
  created_at timestamp with time zone not null default clock_timestamp()
  take integer not null default 0  -- 0 for the answer that counts; the superseding epoch for one that does not any more.
  superseded_at timestamp with time zone  -- When a replay asked something else here and nothing after it had been sent; kept for the record.
  constraint model_calls_pkey PRIMARY KEY (run_id, segment, path, n, take, tenant)
  constraint "the current answer is take 0" CHECK (((superseded_at IS NULL) = (take = 0)))
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table notifications
  -- What a person should hear of. Ids and codes only; delivered at least once, under a stable id.
  id uuid not null default gen_random_uuid()
  tenant text not null
  run_id uuid not null
  kind text not null  -- The kind of the event that caused it, or outbox_dead. All but approval_requested are alerts.
  code text
  action_id uuid
  approval_id uuid
  created_at timestamp with time zone not null default clock_timestamp()
  available_at timestamp with time zone not null default clock_timestamp()
  tries integer not null default 0  -- Deliveries that failed. There is no last one: the waits between them grow to a bound.
  claimed_until timestamp with time zone
  claim_token uuid
  delivered_at timestamp with time zone
  constraint "a notification is of a known kind" CHECK ((kind = ANY (ARRAY['contradiction'::text, 'action_waits_for_person'::text, 'run_dead_lettered'::text, 'security_alert'::text, 'outbox_dead'::text, 'approval_requested'::text])))
  constraint notifications_pkey PRIMARY KEY (id)
  CREATE INDEX notifications_alerts ON notifications USING btree (kind) WHERE (kind <> 'approval_requested'::text)
  CREATE INDEX notifications_by_age ON notifications USING btree (created_at DESC, id)
  CREATE INDEX notifications_to_deliver ON notifications USING btree (((kind = 'approval_requested'::text)), available_at) WHERE (delivered_at IS NULL)
  row level security, forced
  policy "loops deliver" for * to countersign_loops using (true)
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table outbox
  -- Resume announcements, committed with the state that caused them. The id is the job's id.
  id uuid not null default gen_random_uuid()
  position bigint not null generated always as identity  -- Order of a run's rows: they are inserted under the run's lock. Never a cursor.
  tenant text not null
  run_id uuid not null
  wake integer not null
  available_at timestamp with time zone not null default clock_timestamp()
  claimed_until timestamp with time zone
  claim_token uuid
  sent_at timestamp with time zone
  failures integer not null default 0
  dead_at timestamp with time zone
  dead_reason text
  created_at timestamp with time zone not null default clock_timestamp()
  replayed_by text
  constraint "a row is sent or dead, not both" CHECK (((sent_at IS NULL) OR (dead_at IS NULL)))
  constraint outbox_pkey PRIMARY KEY (id)
  CREATE INDEX outbox_dead ON outbox USING btree (dead_at) WHERE (dead_at IS NOT NULL)
  CREATE INDEX outbox_of_run ON outbox USING btree (run_id, "position")
  CREATE INDEX outbox_to_send ON outbox USING btree ("position") WHERE ((sent_at IS NULL) AND (dead_at IS NULL))
  CREATE TRIGGER notify AFTER UPDATE OF dead_at ON outbox FOR EACH ROW WHEN (((old.dead_at IS NULL) AND (new.dead_at IS NOT NULL))) EXECUTE FUNCTION notify_of_dead_outbox()
  row level security, forced
  policy "loops publish" for * to countersign_loops using (true)
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table receipts
  -- Evidence about an attempt, kept from whoever holds it, whatever the epoch. Never updated.
  tenant text not null
  id uuid not null
  action_id uuid not null
  run_id uuid not null
  attempt integer not null
  source evidence_source not null
  outcome evidence_outcome not null
  sealed bytea
  received_at timestamp with time zone not null default clock_timestamp()
  constraint receipts_pkey PRIMARY KEY (id, tenant)
  CREATE INDEX receipts_of_action ON receipts USING btree (action_id)
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table runs
  -- One execution of a workflow. Waiting statuses are written by settle_run_status alone.
  tenant text not null
  id uuid not null
  workflow text not null
  version text not null
  status run_status not null
  reason text  -- A stable code for why it waits or ended; never data.
  wake integer not null default 0  -- Grows whenever the run becomes ready; named by the job; not changed by the claim.
  epoch integer not null default 0  -- Grows with each claim: the fence. Compared on the locked row.
  segment integer not null default 0  -- Number of the checkpoint the run goes on from.
  holder uuid
  held_until timestamp with time zone  -- Until when its holder alone may work on it, by this database's clock.
  attempts_in_round integer not null default 0  -- Claims since the last committed progress or replay.
  claims_in_segment integer not null default 0
  round integer not null default 1
  state_schema text not null  -- What a worker must be able to read to open the current checkpoint.
  manifest text[] not null default '{}'::text[]  -- Digests of the tools whose actions are open at the current checkpoint.
  client_key text
  input_digest text not null
  requested_by text not null
  session_id text
  session_slot text  -- The session it is active on; free again when it ends or is given up.
  session_version integer
  cancel_requested_at timestamp with time zone
  sealed_output bytea
  usage jsonb not null default '{}'::jsonb
  created_at timestamp with time zone not null default clock_timestamp()
  changed_at timestamp with time zone not null default clock_timestamp()
  looked_at timestamp with time zone not null default clock_timestamp()  -- When a sweep last looked at it; infinity while only a person may move it.
  ended_at timestamp with time zone
  parked_times integer not null default 0  -- How often in a row workers found that they could not carry it.
  parked_at timestamp with time zone
  constraint "a client key starts one run" UNIQUE (client_key, tenant)
  constraint "a completed run has its output" CHECK ((((status)::text <> 'completed'::text) OR (sealed_output IS NOT NULL)))
  constraint "a running run is held, and no other" CHECK (((((status)::text = 'running'::text) = (held_until IS NOT NULL)) AND ((holder IS NULL) = (held_until IS NULL))))
  constraint "an active run on a session holds its slot" CHECK ((NOT (session_slot IS DISTINCT FROM
CASE
    WHEN ((status)::text = ANY (ARRAY['completed'::text, 'failed'::text, 'cancelled'::text, 'superseded'::text, 'dead_lettered'::text])) THEN NULL::text
    ELSE session_id
END)))
  constraint "an ended run says when" CHECK ((((status)::text = ANY (ARRAY['completed'::text, 'failed'::text, 'cancelled'::text, 'superseded'::text])) = (ended_at IS NOT NULL)))
  constraint runs_pkey PRIMARY KEY (id, tenant)
  constraint runs_tenant_session_id_fkey FOREIGN KEY (tenant, session_id) REFERENCES sessions(tenant, id)
  CREATE UNIQUE INDEX "a session has one active run" ON runs USING btree (session_slot, tenant) WHERE (session_slot IS NOT NULL)
  CREATE INDEX runs_by_age ON runs USING btree (created_at DESC, id)
  CREATE INDEX runs_of_session ON runs USING btree (session_id, tenant) WHERE (session_id IS NOT NULL)
  CREATE INDEX runs_to_sweep ON runs USING btree (looked_at) WHERE (ended_at IS NULL)
  row level security, forced
  policy "loops renew holds" for w to countersign_loops using (true)
  policy "loops see ids" for r to countersign_loops using (true)
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table session_items
  -- A session's history in order, from position 0.
  tenant text not null
  session_id text not null
  position integer not null
  sealed bytea not null
  run_id uuid not null
  created_at timestamp with time zone not null default clock_timestamp()
  constraint session_items_pkey PRIMARY KEY (session_id, "position", tenant)
  constraint session_items_tenant_session_id_fkey FOREIGN KEY (tenant, session_id) REFERENCES sessions(tenant, id)
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table sessions
  -- Conversations that outlive a run. Written only by the transaction that pauses or ends its one active run.
  tenant text not null
  id text not null
  version integer not null default 0  -- Grows with every change of the items; a run goes on only from the version it left.
  operations jsonb not null default '{}'::jsonb  -- Digests of the latest history transactions by operation id: repeating one changes nothing.
  created_at timestamp with time zone not null default clock_timestamp()
  constraint "a session has an id of 1 to 512 characters" CHECK (((length(id) >= 1) AND (length(id) <= 512)))
  constraint sessions_pkey PRIMARY KEY (id, tenant)
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table tenants
  -- Isolation boundaries. A row appears with the tenant's first run. Nothing refers to it: a caller's open
transaction that starts a run must keep no other start of its tenant waiting.
  id text not null
  created_at timestamp with time zone not null default clock_timestamp()
  constraint "a tenant has a name of 1 to 512 characters" CHECK (((length(id) >= 1) AND (length(id) <= 512)))
  constraint tenants_pkey PRIMARY KEY (id)
  row level security, forced
  policy "only the named tenant" for * to public using ((id = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table tool_results
  -- Results of plain tools, so that a replayed segment sees what it saw. The tools themselves run at least once.
  tenant text not null
  run_id uuid not null
  segment integer not null
  call_id text not null
  tool text not null
  sealed bytea not null
  epoch integer not null
  created_at timestamp with time zone not null default clock_timestamp()
  constraint tool_results_pkey PRIMARY KEY (run_id, call_id, tenant)
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table votes
  -- One person's word. The transition is the approval's; votes are many.
  tenant text not null
  approval_id uuid not null
  subject text not null
  id uuid not null
  verdict text not null
  fingerprint text not null
  cast_at timestamp with time zone not null default clock_timestamp()
  constraint "a vote is for or against" CHECK ((verdict = ANY (ARRAY['approve'::text, 'reject'::text])))
  constraint "a voter has a name of 1 to 512 characters" CHECK (((length(subject) >= 1) AND (length(subject) <= 512)))
  constraint votes_pkey PRIMARY KEY (approval_id, subject, tenant)
  constraint votes_tenant_approval_id_fkey FOREIGN KEY (tenant, approval_id) REFERENCES approvals(tenant, id)
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table wasted_calls
  -- What a claim paid models for nothing, as far as its worker could still say so: calls that failed, answers that could not
be stored. Evidence, kept from whoever holds it, whatever the epoch.
  tenant text not null
  run_id uuid not null
  epoch integer not null
  id uuid not null default gen_random_uuid()
  usage jsonb not null
  at timestamp with time zone not null default clock_timestamp()
  constraint wasted_calls_pkey PRIMARY KEY (run_id, epoch, id, tenant)
  row level security, forced
  policy "only the named tenant" for * to public using ((tenant = NULLIF(current_setting('countersign.tenant'::text, true), ''::text)))

table workers
  -- Who is alive and what it can carry. The claim and settle_run_status compare runs with it.
  id uuid not null
  kind text not null
  name text not null
  workflows text[] not null  -- name@version of each workflow it has loaded.
  state_schemas text[] not null
  tools text[] not null  -- Manifest digests of every action() tool it has loaded.
  started_at timestamp with time zone not null default clock_timestamp()
  alive_until timestamp with time zone not null
  stopped_at timestamp with time zone
  constraint "a worker process is a resume worker or a reconciler" CHECK ((kind = ANY (ARRAY['resume'::text, 'reconciler'::text])))
  constraint workers_pkey PRIMARY KEY (id)

table workflows
  -- Every (name, version) that some worker has ever announced: what start may name.
  name text not null
  version text not null
  announced_at timestamp with time zone not null default clock_timestamp()
  constraint workflows_pkey PRIMARY KEY (name, version)

-- Functions

function announce_worker(p_id uuid, p_kind text, p_name text, p_workflows text[], p_state_schemas text[], p_tools text[], p_alive_ms integer) returns void language plpgsql security definer owner countersign_loops
  body sha256 e6850bf57cab6473f0cdab2a473eb27cf90638f43c78fb0c6d3d61a387d3f978
function append_event(p_tenant text, p_run uuid, p_kind text, p_data jsonb) returns void language sql owner migrator
  body sha256 bbd982f5c1276f3073aedd663f8baf6c17a346a45c918c0dbb11252dd016506a
function append_events(p_tenant text, p_events new_event[]) returns void language plpgsql owner migrator
  body sha256 2275b120aa228537c5d27699d9b818fec0d5ff0c102e7d3862bb13542e5bb248
function as_tenant(p_tenant text) returns void language sql owner migrator
  body sha256 5067f8fbf7e7cb11506c52580ab9478d3929f92691f75e2c518d43923882b0da
function ask_action(p_tenant text, p_action uuid, p_subject text, OUT outcome text, OUT run_id uuid, OUT run_status text, OUT state text, OUT recovery text) returns record language plpgsql security definer owner migrator
  body sha256 930bd2b7c811149402090111687720a6786f3e5f63bfe37e0b7ac1127710b9ce
function can_be_carried(r runs) returns boolean language sql owner migrator
  body sha256 e7bf7c8268ae2236c81771422bc6a1db21f2c8cfbf6910e94d5866e7d61e56b4
function cancel_run(p_tenant text, p_run uuid, p_subject text, OUT outcome text, OUT status text, OUT in_flight uuid[]) returns record language plpgsql owner migrator
  body sha256 7ba75b3184c8fd1e731e2ff53a4007bda859d9969cb4486a11b2161d8a5e91b2
function claim_actions_to_reconcile(p_limit integer, p_lease_ms bigint, p_workflows text[]) returns TABLE(tenant text, run_id uuid, action_id uuid) language sql security definer owner countersign_loops
  body sha256 1f927e2538722859402b8837ae2e7962599e6068fde903657de3281d798ec5d6
function claim_notifications(p_limit integer, p_claim_ms integer, p_token uuid) returns TABLE(id uuid, kind text, tenant text, run_id uuid, action_id uuid, approval_id uuid, code text, at timestamp with time zone) language sql security definer owner countersign_loops
  body sha256 5cc1e0010aa1075b3fea9a7b6294958b1f7a12def8a363bf79bfae7e6e4fb04b
function claim_outbox(p_limit integer, p_claim_ms integer, p_token uuid) returns TABLE(id uuid, tenant text, run_id uuid, wake integer) language sql security definer owner countersign_loops
  body sha256 ae2c0c9c8c5d53c196e9bf8dec2c22ad67822625f501ba55facb5450715b03da
function claim_runs(p_tenant text, p_calls json) returns TABLE(n integer, outcome text, wait_ms integer, run json, sealed bytea, actions json, calls json, tool_results json, session json) language plpgsql owner migrator
  body sha256 0186b8de1cf9d11fb5b81831b0e6f6e650264bbf117926d6baf7c46fb6d3c2b6
function close_action(p_tenant text, p_run uuid, p_action uuid, p_reason text) returns void language plpgsql owner migrator
  body sha256 959edb86744d5e40f50dbfc7657e39f9df68162dd55c28f2782a04e6d85c8238
function close_run(p_tenant text, p_run uuid, p_reason text) returns void language plpgsql owner migrator
  body sha256 e287c6d15264dabc94a0ebeb888e5219cc4e91edd0e2481732e9ad7349fa358f
function count_park(p_tenant text, p_run uuid) returns void language plpgsql owner migrator
  body sha256 2849a9b378efcd8ad1f6eefb745f6792a7ac426e3fe1d503580369f5dfb18adf
function count_wasted(p_tenant text, p_run uuid, p_claim integer, p_usage jsonb) returns void language plpgsql owner migrator
  body sha256 ddfafc9d232d8bf38b83dfe50f597030ec72ff1a1b02450fdd0341fe57ba265a
function dead_letter_run(p_tenant text, p_run uuid, p_class text, p_code text) returns void language plpgsql owner migrator
  body sha256 9ceeb95eefc5ba51e65ed54e49e6a8d93ade7a1c6855fd41878e708b57f69e98
function decide_approval(p_tenant text, p_approval uuid, p_verdict text, p_subject text, p_fingerprint text, p_vote uuid, p_sealed_words bytea, OUT outcome text, OUT state text, OUT decision_id uuid, OUT decided_by text, OUT decided_at timestamp with time zone, OUT run_id uuid, OUT run_status text) returns record language plpgsql owner migrator
  body sha256 fda494c5fcf2b043c4b0194c3c0c9794bf9c3e91d30e50ceaf9c8efeeb09e841
function event_digest(p_previous bytea, p_tenant text, p_run uuid, p_n integer, p_kind text, p_data jsonb, p_at timestamp with time zone) returns bytea language sql owner migrator
  body sha256 77ebbdbc8b6a89742a9bb3a0f1c85021572362fc4fcb8cdfaebb9fad8779ee03
function expire_approval(p_tenant text, p approvals) returns void language plpgsql owner migrator
  body sha256 2de6c2dde506ada9fea78d9c4ce7f9694ae9374b42f8ce867d0929de768aca40
function fingerprint_of(a actions, p approvals) returns text language sql owner migrator
  body sha256 28143137541f5157ea321b051730f7e3dbc867d4829fc7c0445f758e4cfa0cec
function finish_runs(p_tenant text, p_calls json) returns TABLE(n integer, finished boolean) language plpgsql owner migrator
  body sha256 d640e11588fd105aa2fc0889c87a6d353ffa0d8c078b12bd833e69499c782120
function fleet_numbers() returns TABLE(name text, label text, value integer) language sql security definer owner countersign_loops
  body sha256 e0270740fc7a75d0a4ecdac326a1a3be0bb37df52187c797710262e9294a2c52
function follow_settlement(s settlement) returns text language plpgsql owner migrator
  body sha256 a42fea3176b2e01cb25aaa97a80df01004bb40a78566bb6f6fd6a91cdb543df3
function free_session(p_tenant text, p_session text, p_supersede boolean, p_client_key text) returns uuid language plpgsql owner migrator
  body sha256 77a39c0078963842ab3d46a1fa506e97d85ad52da223e15b4120410ead7b3941
function hand_back_run(p_tenant text, p_run uuid, p_epoch integer, p_max_claims integer) returns text language plpgsql owner migrator
  body sha256 edf6bec15d1c7e1e94b82a76c504711469711d3e734b7a1f066a0b42da9272ad
function intend_actions(p_tenant text, p_calls json) returns TABLE(n integer, outcome text, state text, reason text, attempt integer, sealed_result bytea) language plpgsql owner migrator
  body sha256 902dfa8f405c86b663798e93ddca576b4814d71c64a843a48b6828620ad2dc97
function journal_response(p_tenant text, p_run uuid, p_epoch integer, p_call jsonb, p_actions jsonb) returns text language plpgsql owner migrator
  body sha256 2b5609333a3e26531b429dc195742ca6301629d7caabc9443c830ee6db53e726
function journal_responses(p_tenant text, p_calls json) returns TABLE(n integer, outcome text) language sql owner migrator
  body sha256 968d5f1f00e026e09ec96c3de24edb78b094628825efbb86b349aaafd7a3b0d8
function keep_evidence(c settle_call, r runs, a actions, OUT outcome text, OUT run_status text) returns record language plpgsql owner migrator
  body sha256 69ec32108d8a5840eb1628262430acf7cacdcada82c52bb19c9eafa3c6801a9e
function load_action_to_reconcile(p_tenant text, p_run uuid, p_action uuid) returns TABLE(workflow text, version text, tool text, recovery text, state text, attempt integer, effective_digest text, sealed_arguments bytea, absent_after timestamp with time zone, reconcile_tries integer, asked_at timestamp with time zone, reissue text) language plpgsql owner migrator
  body sha256 366355a771b88726606deeabe607ad543eb747565c05e2878cbbf2ec2574b9dd
function load_run(p_tenant text, p_run uuid, OUT run json, OUT sealed bytea, OUT actions json, OUT calls json, OUT tool_results json, OUT session json) returns record language plpgsql owner migrator
  body sha256 f33e0aff747e490aa5ddd19d085b4ed757a75239ceb7b58fee8aad9fac571def
function load_segments(p_tenant text, p_runs uuid[]) returns TABLE(run_id uuid, run json, sealed bytea, actions json, calls json, tool_results json, session json) language plpgsql owner migrator
  body sha256 672e0bc7efe8a2c90215ca8f2bcda7f196d9d7493b4db122348618dc4715a771
function load_session(p_tenant text, p_run uuid, p_session text, p_first boolean) returns json language plpgsql owner migrator
  body sha256 eefc6fb9c52186455a6b92f1b0c8aaf6dc7e12b5e771e41fd380a239c036787c
function mark_notifications_delivered(p_ids uuid[], p_token uuid) returns void language sql security definer owner countersign_loops
  body sha256 2999b2af690a2cd7b1a334ac275dcd97ed42a59c5e54d85fe00997a8d47356a0
function mark_notifications_failed(p_ids uuid[], p_token uuid, p_first_ms integer, p_most_ms integer) returns void language sql security definer owner countersign_loops
  body sha256 6c6fa572798a0ddccec9f125a5a65c856b0f1cd149b2bc4ce0d2cc0e65c9b927
function mark_outbox_failed(p_id uuid, p_token uuid, p_counts boolean, p_budget integer, p_retry_ms integer, p_reason text) returns void language sql security definer owner countersign_loops
  body sha256 d058a4a622add34c30cde9e6277a540e11605174e480ac65f25a447d5d7ef93f
function mark_outbox_sent(p_ids uuid[], p_token uuid) returns integer language sql security definer owner countersign_loops
  body sha256 7199be55700cbf7f4696aa71edd051877bbaca07e6927b707d6c06e275da716a
function may_repeat(a actions) returns boolean language sql owner migrator
  body sha256 ef2facf3cb85adc7881470e7aa95d5b8e75ef61d0e2f5de4c06957b44f3717a8
function notify_of_dead_outbox() returns trigger language plpgsql security definer owner countersign_loops
  body sha256 11ab250039a1eab71b1837b33bb05d074fa4b264409da07480a6d6dda00e0db1
function notify_of_event(p_tenant text, p_run uuid, p_kind text, p_data jsonb) returns void language plpgsql owner migrator
  body sha256 f309654b915bf0dda5bb022ec2bddcf565a637c1adb4d2503cc9cd95fefd77f4
function park_run(p_tenant text, p_run uuid, p_epoch integer, p_reason text) returns text language plpgsql owner migrator
  body sha256 e0c114ab18ac1275ca1828b81f51b27b6fa85b657f779ba43daa28ba3363e5c1
function parked_until(r runs, p_patience_ms bigint) returns timestamp with time zone language sql owner migrator
  body sha256 cc54e387ffdf9f7db7fee49db38587c672157a985a5013b49c57605c2ad7daed
function pause_run(p_tenant text, p_run uuid, p_epoch integer, p_number integer, p_sealed bytea, p_state_schema text, p_manifest text[], p_approvals jsonb, p_usage jsonb, p_session jsonb) returns text language plpgsql owner migrator
  body sha256 a9010b86d612998b9a1f33eccbc3d273ecf8950139494d234f16434c8e10a57b
function pause_runs(p_tenant text, p_calls json) returns TABLE(n integer, status text) language sql owner migrator
  body sha256 5138583bf003cad0d19ec262a1274752a6eca7ba6b97f193625048e0a1d5f3e3
function quarantine_run(p_tenant text, p_run uuid, p_epoch integer, p_reason text) returns text language plpgsql owner migrator
  body sha256 6faac764b5e9a28758b3f696b90f78e3e0d407c144fd316c18df4f0b5feb0158
function refuse_undecided(a actions, p approvals) returns text language plpgsql owner migrator
  body sha256 428c8a1fd5b1b6a31ce204ea6dcbdd433aef0278988e0a6a055ebd68609c8c90
function release_quarantine(p_tenant text, p_run uuid, p_subject text, p_reason text, OUT outcome text, OUT run_status text) returns record language plpgsql security definer owner migrator
  body sha256 943328678b13e70398a316f8b7b3b2b46a65c9d077e088086e03af69e632af40
function release_run(p_tenant text, p_run uuid, p_epoch integer, p_reason text, p_delay_ms bigint, p_class text, p_max_attempts integer, p_refund boolean) returns text language plpgsql owner migrator
  body sha256 b7454a6bb0284361ecf3db51721e7067dea77e1b00d69f2b7cf2cc71798f0de4
function renew_holds(p_worker uuid, p_ttl_ms integer, p_alive_ms integer, p_tenants text[], p_runs uuid[], p_epochs integer[]) returns TABLE(tenant text, run_id uuid, epoch integer, renewed boolean) language plpgsql security definer owner countersign_loops
  body sha256 5ab94e65f0d744fcb4a076f1ea1a114f74b363794004bd9407cb879cc0953fb0
function replay_dead_letter(p_tenant text, p_dead_letter uuid, p_subject text, p_reason text, OUT outcome text, OUT run_id uuid, OUT run_status text) returns record language plpgsql security definer owner migrator
  body sha256 5db62b35f41ed199cd64ed334094da0693633048fd6b4fe6f4c78cad1b926424
function replay_outbox_row(p_tenant text, p_id uuid, p_subject text, OUT outcome text, OUT run_id uuid) returns record language plpgsql security definer owner migrator
  body sha256 eed1c9d1dc150e1e63fd952094a2dcafc1a1e8decc6280323c74829c1b69d4df
function request_again(p_tenant text, p_run uuid, p_epoch integer, p_action uuid, p_approvals jsonb) returns text language plpgsql owner migrator
  body sha256 2f4579f97a4d71bf85e2ceb27f88c4c5dc8b64435a2a6864a8a6d890a2afc2a2
function request_approvals(p_tenant text, p_run uuid, p_number integer, p_approvals jsonb) returns void language plpgsql owner migrator
  body sha256 71a0a3dea9492d1c78e394582282045600f940133c66c104366d76e8a954a807
function resolve_action(p_tenant text, p_action uuid, p_attempt integer, p_verdict text, p_subject text, p_receipt uuid, p_sealed_evidence bytea, p_sealed_result bytea, OUT outcome text, OUT run_id uuid, OUT run_status text, OUT state text, OUT attempt integer, OUT absent_after timestamp with time zone) returns record language plpgsql security definer owner migrator
  body sha256 975dc80faea2d98353c8a765c586a2a76524d388792eb8ea6b9e2bcc5d53fe74
function restart_run(p_tenant text, p_run uuid, p_number integer, p_new uuid, p_version text, p_sealed bytea, p_approvals jsonb, p_subject text, p_reason text, OUT outcome text, OUT blocking uuid[], OUT run_status text) returns record language plpgsql security definer owner migrator
  body sha256 0b24795d9144d6b14e762201c9417c84318e75f965c951f89748e38cc3d19b32
function revoke_approval(p_tenant text, p_approval uuid, p_subject text, OUT outcome text, OUT state text, OUT run_id uuid, OUT run_status text) returns record language plpgsql owner migrator
  body sha256 e6d57efff3a72beea48abcac2ff6b474bbcf6d5c26c1a2a24d30cf5390886992
function runs_to_repeat(p_limit integer) returns TABLE(tenant text, run_id uuid) language sql security definer owner countersign_loops
  body sha256 3a7efc918b0483291352ded92d98fc3e3fe120d34bc347c98e8c0b992b257197
function runs_to_sweep(p_limit integer, p_patience_ms bigint) returns TABLE(tenant text, run_id uuid) language sql security definer owner countersign_loops
  body sha256 628dcc25055986ea1a3624ce2a94ba2026f8b2d206ca1e08b4902cc644d831e0
function runs_to_unpark(p_limit integer, p_workflows text[]) returns TABLE(tenant text, run_id uuid) language sql security definer owner countersign_loops
  body sha256 89921985443a134279f3deeb9ce0ab346e47b520e84dc86de30e0b64c0d3603f
function settle_actions(p_tenant text, p_calls json) returns TABLE(n integer, outcome text, run_status text) language plpgsql owner migrator
  body sha256 f5b8b8413b8567e855d64d843052a5d3842ba31cf10c309103d23df933d3224d
function settle_elsewhere(p_tenant text, c settle_call, OUT outcome text, OUT run_status text) returns record language plpgsql owner migrator
  body sha256 8ce6ecc034a07f3b99b8f0ec9831d2a41d5df4055de3e73fc96f926bc9054406
function settle_lookup(p_tenant text, p_run uuid, p_action uuid, p_attempt integer, p_outcome text, p_receipt uuid, p_sealed_receipt bytea, p_sealed_result bytea, p_reason text, p_backoff_ms bigint, p_asked_at timestamp with time zone, p_budget integer, OUT outcome text, OUT run_status text, OUT waits boolean) returns record language plpgsql owner migrator
  body sha256 b94a71ae71672569c1fb48be794aaf63c4fbc43c442292a88f5d455e34024c82
function settle_parked(p_tenant text, p_run uuid, p_reason text) returns void language plpgsql owner migrator
  body sha256 643841e32f0820c7453fb61b3a6fa92ddb6347b8279d5eae8ae7c5fb39c55740
function settle_quarantined(p_tenant text, p_run uuid, p_reason text, p_action uuid) returns void language plpgsql owner migrator
  body sha256 c56fcde52d62304d0a9b3cdc94e8529414bd0451c9ec643045d2511feb2990da
function settle_run_status(p_tenant text, p_run uuid, p_release boolean, p_delay_ms bigint, p_reason text) returns text language plpgsql owner migrator
  body sha256 27a2d0bd7b8b9f9ca46946bf2e4ddcff7b9613c2d415878256dca6d929b2a19c
function start_run(p_tenant text, p_run uuid, p_workflow text, p_version text, p_client_key text, p_input_digest text, p_sealed_input bytea, p_requested_by text, p_session text, p_supersede boolean, OUT outcome text, OUT run_id uuid, OUT known text[]) returns record language plpgsql security definer owner migrator
  body sha256 5748ee51a96ea75ec4502704fac780c3478e0aae24ff8108ab08f9ac82d2afff
function stop_worker(p_id uuid) returns void language sql security definer owner countersign_loops
  body sha256 9a7cab9cd08296caf318968dd3e500bb1c11d331b0b088dadf1699a2a41defbe
function store_model_calls(p_tenant text, p_runs uuid[], p_owners integer[], p_calls jsonb[]) returns void language plpgsql owner migrator
  body sha256 35e30e6fbab88a9ce3ad97cfaf5d5d837fadd0bb3ba9b8c4aa6c3a9b2665e93d
function store_session(p_tenant text, r runs, p_change jsonb) returns void language plpgsql owner migrator
  body sha256 6839c34092b3f69ca18823a38796f1311399d4bebca0ac178ed9eadfe09368f9
function store_tool_result(p_tenant text, p_run uuid, p_epoch integer, p_call_id text, p_tool text, p_sealed bytea) returns text language plpgsql owner migrator
  body sha256 94a9f43236a7c2a0c68c492077265ad8d35c70057e031b23f3d04c3588cdd304
function supersede_journal(p_tenant text, p_run uuid, p_epoch integer, p_path text, p_n integer) returns text[] language plpgsql owner migrator
  body sha256 fb89034d189c28aa8741072ac91877b76783dbb624adcaf2aeaf7ad14cd2047b
function supersede_run(p_tenant text, p_run uuid) returns void language plpgsql owner migrator
  body sha256 8ab7a111f3e6bd2fb32074f4e581fe6e511b50faccb8e1efc477ffb80f594972
function sweep_run(p_tenant text, p_run uuid, p_patience_ms bigint) returns text language plpgsql owner migrator
  body sha256 051d0a8d9bfb1267e678d6581a36975c99bf189a1ad670404f1222ce4ef3cf67
function unended_runs(p_limit integer, p_after uuid) returns TABLE(tenant text, run_id uuid) language sql security definer owner countersign_loops
  body sha256 6644292d54905a58d9f18fa97c343693c34de04715f992e6dddca9136077ef91
function worker_started_since(r runs, p_at timestamp with time zone) returns SETOF uuid language sql owner migrator
  body sha256 dde45c91572683b5c2c2b6e698f56620d577a6e5721bf09d42d8a541d1d8afdf

-- Grants

countersign_api: INSERT, SELECT on events
countersign_api: INSERT, SELECT on notifications
countersign_api: INSERT, SELECT on outbox
countersign_api: INSERT, SELECT, UPDATE on votes
countersign_api: SELECT (action_id, attempt, id, outcome, received_at, run_id, source, tenant) on receipts
countersign_api: SELECT (created_at, epoch, number, run_id, state_schema, tenant) on checkpoints
countersign_api: SELECT (run_id, segment, take, tenant, usage) on model_calls
countersign_api: SELECT on dead_letters
countersign_api: SELECT on migrations
countersign_api: SELECT on sessions
countersign_api: SELECT on tenants
countersign_api: SELECT on wasted_calls
countersign_api: SELECT on workers
countersign_api: SELECT on workflows
countersign_api: SELECT, UPDATE on actions
countersign_api: SELECT, UPDATE on approvals
countersign_api: SELECT, UPDATE on runs
countersign_api: execute append_event, append_events, as_tenant, ask_action, can_be_carried, cancel_run, close_action, close_run, decide_approval, event_digest, expire_approval, fingerprint_of, fleet_numbers, may_repeat, notify_of_event, release_quarantine, replay_dead_letter, replay_outbox_row, resolve_action, revoke_approval, settle_run_status, start_run
countersign_loops: DELETE, INSERT, SELECT, UPDATE on workers
countersign_loops: INSERT, SELECT on workflows
countersign_loops: INSERT, SELECT, UPDATE on notifications
countersign_loops: SELECT (changed_at, ended_at, epoch, held_until, holder, id, looked_at, manifest, reason, state_schema, status, tenant, version, workflow) on runs
countersign_loops: SELECT (class, closed_as) on dead_letters
countersign_loops: SELECT (id, lapses_at, run_id, state, tenant) on approvals
countersign_loops: SELECT (id, reconcile_after, recovery, run_id, state, tenant) on actions
countersign_loops: SELECT, UPDATE on outbox
countersign_loops: UPDATE (held_until) on runs
countersign_loops: UPDATE (reconcile_after) on actions
countersign_loops: execute announce_worker, claim_actions_to_reconcile, claim_notifications, claim_outbox, fleet_numbers, mark_notifications_delivered, mark_notifications_failed, mark_outbox_failed, mark_outbox_sent, notify_of_dead_outbox, renew_holds, runs_to_repeat, runs_to_sweep, runs_to_unpark, stop_worker, unended_runs
countersign_relay: SELECT on migrations
countersign_relay: execute claim_notifications, claim_outbox, mark_notifications_delivered, mark_notifications_failed, mark_outbox_failed, mark_outbox_sent
countersign_worker: DELETE, INSERT, SELECT on session_items
countersign_worker: INSERT, SELECT on checkpoints
countersign_worker: INSERT, SELECT on dead_letters
countersign_worker: INSERT, SELECT on events
countersign_worker: INSERT, SELECT on notifications
countersign_worker: INSERT, SELECT on outbox
countersign_worker: INSERT, SELECT on receipts
countersign_worker: INSERT, SELECT on tool_results
countersign_worker: INSERT, SELECT on wasted_calls
countersign_worker: INSERT, SELECT, UPDATE on actions
countersign_worker: INSERT, SELECT, UPDATE on approvals
countersign_worker: INSERT, SELECT, UPDATE on model_calls
countersign_worker: SELECT on migrations
countersign_worker: SELECT on tenants
countersign_worker: SELECT on votes
countersign_worker: SELECT on workers
countersign_worker: SELECT on workflows
countersign_worker: SELECT, UPDATE on runs
countersign_worker: SELECT, UPDATE on sessions
countersign_worker: execute announce_worker, append_event, append_events, as_tenant, can_be_carried, cancel_run, claim_actions_to_reconcile, claim_runs, close_action, close_run, count_park, count_wasted, dead_letter_run, event_digest, expire_approval, fingerprint_of, finish_runs, follow_settlement, free_session, hand_back_run, intend_actions, journal_response, journal_responses, keep_evidence, load_action_to_reconcile, load_run, load_segments, load_session, may_repeat, notify_of_event, park_run, parked_until, pause_run, pause_runs, quarantine_run, refuse_undecided, release_run, renew_holds, request_again, request_approvals, restart_run, runs_to_repeat, runs_to_sweep, runs_to_unpark, settle_actions, settle_elsewhere, settle_lookup, settle_parked, settle_quarantined, settle_run_status, start_run, stop_worker, store_model_calls, store_session, store_tool_result, supersede_journal, supersede_run, sweep_run, unended_runs, worker_started_since
