-- Countersign, migration 3: actions. Mint (with the journal), intend, settle, reconcile.

-- Journal: one model response and the actions it asks for, in one statement, before the runner acts on either.
-- The action id, minted here, is the operation key for ever. outcome: stored | exists (a double won) | fenced.
create function journal_response(p_tenant text, p_run uuid, p_epoch integer, p_call jsonb, p_actions jsonb)
returns text language plpgsql
as $$
declare
  r runs;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  if r.epoch is distinct from p_epoch or r.status <> 'running' then
    return 'fenced';
  end if;
  if exists (select 1 from model_calls m where m.tenant = p_tenant and m.run_id = p_run and m.segment = r.segment
             and m.path = p_call ->> 'path' and m.n = (p_call ->> 'n')::integer and m.take = 0) then
    return 'exists';
  end if;
  perform store_model_calls(p_tenant, array[p_run], array[p_epoch], array[jsonb_build_array(p_call)]);
  insert into actions (tenant, id, run_id, segment, path, call_id, tool, tool_version, gated, recovery, state, reason,
    attempt_budget, proposed_digest, effective_digest, operation_digest, sealed_arguments,
    send_within_ms, call_timeout_ms, settles_within_ms, key_lifetime_ms, reissue, settled_at)
  select p_tenant, a.id, p_run, r.segment, p_call ->> 'path', a.call_id, a.tool, a.tool_version, a.gated, a.recovery,
    case when a.refused is null then 'prepared' else 'not_executed' end, a.refused,
    a.attempt_budget, a.proposed_digest, a.effective_digest, a.operation_digest, decode(a.sealed_arguments, 'base64'),
    a.send_within_ms, a.call_timeout_ms, a.settles_within_ms, a.key_lifetime_ms, a.reissue,
    case when a.refused is null then null else clock_timestamp() end
  from jsonb_to_recordset(p_actions) as a (id uuid, call_id text, tool text, tool_version text, gated boolean, recovery text,
    refused text, attempt_budget integer, proposed_digest text, effective_digest text, operation_digest text,
    sealed_arguments text, send_within_ms integer, call_timeout_ms integer, settles_within_ms integer,
    key_lifetime_ms bigint, reissue text);
  perform append_event(p_tenant, p_run, 'action_prepared', jsonb_build_object('action', a ->> 'id', 'tool', a ->> 'tool',
      'gated', (a ->> 'gated')::boolean, 'refused', a ->> 'refused'))
    from jsonb_array_elements(p_actions) as a;
  update runs set attempts_in_round = 0 where tenant = p_tenant and id = p_run and attempts_in_round > 1;
  return 'stored';
end
$$;

create type journal_call as (n integer, run uuid, epoch integer, call jsonb, actions jsonb);

-- The same for the responses of several runs, one after the other: they share a commit.
create function journal_responses(p_tenant text, p_calls json) returns table (n integer, outcome text)
language sql set search_path = countersign, pg_temp
as $$
  select c.n, journal_response(p_tenant, c.run, c.epoch, c.call, c.actions)
  from (select * from json_populate_recordset(null::journal_call, p_calls) order by run) as c
$$;

-- Diverged: a replay asks something else at (path, n). If nothing minted there or later has ever been sent, that tail of
-- the journal is kept but counts no more, its actions will not be executed, and the segment goes on live. Otherwise
-- nothing changes. Returns the places given up (path#n); null: fenced; empty: something was sent, so the run must stop.
create function supersede_journal(p_tenant text, p_run uuid, p_epoch integer, p_path text, p_n integer) returns text[]
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  r runs;
  since timestamptz;
  places text[];
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  if r.epoch is distinct from p_epoch or r.status <> 'running' then
    return null;
  end if;
  select m.created_at into since from model_calls m where m.tenant = p_tenant and m.run_id = p_run and m.segment = r.segment
    and m.path = p_path and m.n = p_n and m.take = 0;
  if since is null or exists (select 1 from actions a where a.tenant = p_tenant and a.run_id = p_run and a.segment = r.segment
      and a.created_at >= since and a.attempt > 0) then
    return '{}';
  end if;
  perform close_action(p_tenant, p_run, a.id, 'superseded') from actions a
    where a.tenant = p_tenant and a.run_id = p_run and a.segment = r.segment and a.created_at >= since and a.state = 'prepared';
  with given_up as (
    update model_calls m set superseded_at = clock_timestamp(), take = p_epoch
    where m.tenant = p_tenant and m.run_id = p_run and m.segment = r.segment and m.created_at >= since and m.take = 0
    returning m.path || '#' || m.n as place)
  select coalesce(array_agg(place), '{}') into places from given_up;
  perform append_event(p_tenant, p_run, 'journal_superseded', jsonb_build_object('path', p_path, 'n', p_n, 'responses', cardinality(places)));
  return places;
end
$$;

-- A plain tool's result, so that a replay of the segment sees the same. Fenced. outcome: stored | fenced.
create function store_tool_result(p_tenant text, p_run uuid, p_epoch integer, p_call_id text, p_tool text, p_sealed bytea)
returns text language plpgsql set search_path = countersign, pg_temp
as $$
declare
  r runs;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  if r.epoch is distinct from p_epoch or r.status <> 'running' then
    return 'fenced';
  end if;
  insert into tool_results (tenant, run_id, segment, call_id, tool, sealed, epoch)
  values (p_tenant, p_run, r.segment, p_call_id, p_tool, p_sealed, p_epoch) on conflict do nothing;
  return 'stored';
end
$$;

-- Fingerprint: what a decision binds to, from the rows as they stand. Kept at the request, shown with it,
-- compared at the decision and again at intend.
create function fingerprint_of(a actions, p approvals) returns text
language sql stable
as $$
  select encode(sha256(convert_to(jsonb_build_array(a.tenant, p.run_id, a.id, a.tool, a.tool_version, a.effective_digest,
    p.policy, p.policy_version, p.quorum, (extract(epoch from p.decide_before) * 1000000)::bigint, p.execute_within_ms)::text, 'UTF8')), 'hex')
$$;

-- Closes a prepared action that was never sent.
create function close_action(p_tenant text, p_run uuid, p_action uuid, p_reason text) returns void
language plpgsql
as $$
begin
  update actions set state = 'not_executed', reason = p_reason, settled_at = clock_timestamp()
  where tenant = p_tenant and id = p_action and state = 'prepared';
  if found then
    perform append_event(p_tenant, p_run, 'action_not_executed', jsonb_build_object('action', p_action, 'reason', p_reason));
  end if;
end
$$;

create type intend_call as (n integer, run uuid, epoch integer, action uuid, tool text, proposed_digest text, effective_digest text);

-- Intend: the last gate before the world. One statement of the worker, fenced, under the locks run, operation.
-- outcome: dispatched (call now, this attempt) | receipt (settled before: answer from the ledger)
--   | refused (not executed, with the reason) | held (in flight or unknown here or elsewhere: suspend)
--   | decide_again (an identical action has succeeded since the decision: request_again)
--   | digest_mismatch (quarantined) | fenced.
create function intend_actions(p_tenant text, p_calls json)
returns table (n integer, outcome text, state text, reason text, attempt integer, sealed_result bytea)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  tenant_named text := set_config('countersign.tenant', p_tenant, true);
  asked intend_call[] := array(select c from json_populate_recordset(null::intend_call, p_calls) as c);
  run_ids uuid[] := array(select k.run from unnest(asked) k);
  action_ids uuid[] := array(select k.action from unnest(asked) k);
  c record;
  r runs;
  a actions;
  p approvals;
  at_time timestamptz;
  sent uuid[] := '{}';
  operations text[] := '{}';
  consumed uuid[] := '{}';
  told new_event[] := '{}';
begin
  perform 1 from runs t where t.tenant = p_tenant and t.id = any (run_ids) order by t.id for no key update;
  -- Who asks first for an operation keeps the others out until its commit, so that two looks never both find nothing.
  perform pg_advisory_xact_lock(o.key) from (
    select distinct hashtextextended('countersign operation ' || p_tenant || ' ' || t.operation_digest, 0) as key
    from actions t where t.tenant = p_tenant and t.id = any (action_ids) and t.state = 'prepared' order by key) o;

  -- A statement of its own: it must see what was committed while it waited. And the clock is read once: what is compared
  -- with execute_before is what is recorded.
  at_time := clock_timestamp();
  for c in
    select k.*, t as its_run, x as its_action, q.approval, fingerprint_of(x, q.approval) as fingerprint, same.open, same.done
    from unnest(asked) k
    left join runs t on t.tenant = p_tenant and t.id = k.run and t.id = any (run_ids)
    left join actions x on x.tenant = p_tenant and x.id = k.action and x.run_id = k.run and x.id = any (action_ids)
    left join lateral (select l as approval from approvals l where l.tenant = p_tenant and l.action_id = x.id
      order by l.created_at desc limit 1) q on true
    cross join lateral (
      select (array_agg(o.id) filter (where o.state in ('dispatched', 'outcome_unknown')))[1] as open,
        bool_or(o.state = 'succeeded' and x.gated and o.settled_at > (q.approval).decided_at) as done
      from actions o where o.tenant = p_tenant and o.operation_digest = x.operation_digest and o.id <> x.id) same
  loop
    r := c.its_run;
    a := c.its_action;
    p := c.approval;
    n := c.n;
    state := a.state;
    reason := a.reason;
    attempt := null;
    sealed_result := null;
    if a.operation_digest = any (operations) then
      c.open := sent[array_position(operations, a.operation_digest)];
    end if;

    if r.epoch is distinct from c.epoch or r.status <> 'running' then
      outcome := 'fenced';
    -- Before anything else, also before a stored receipt: is this the call that was reviewed? (I2)
    elsif a.id is null or a.tool is distinct from c.tool or a.proposed_digest is distinct from c.proposed_digest
       or (a.effective_digest is not null and a.effective_digest is distinct from c.effective_digest)
       or (a.gated and p.state in ('approved', 'consumed') and p.fingerprint is distinct from c.fingerprint) then
      perform settle_quarantined(p_tenant, r.id, 'DIGEST_MISMATCH', c.action);
      outcome := 'digest_mismatch';
    elsif a.state in ('succeeded', 'failed', 'abandoned') then
      outcome := 'receipt';
      sealed_result := a.sealed_result;
      attempt := a.attempt;
    elsif a.state = 'not_executed' then
      outcome := 'refused';
    elsif a.state in ('dispatched', 'outcome_unknown') then
      outcome := case when r.cancel_requested_at is null and may_repeat(a) then 'dispatched' else 'held' end;
    elsif r.cancel_requested_at is not null then
      perform close_action(p_tenant, r.id, a.id, 'cancelled');
      outcome := 'refused';
      reason := 'cancelled';
    elsif a.gated and (p.state is distinct from 'approved' or at_time >= p.execute_before) then
      outcome := 'refused';
      reason := refuse_undecided(a, p);
    elsif c.open is not null then
      outcome := 'held';
      update actions t set held_by = c.open where t.tenant = p_tenant and t.id = a.id;
      perform append_event(p_tenant, r.id, 'action_held', jsonb_build_object('action', a.id, 'by', c.open));
    elsif c.done then
      -- Who decided did not know that it had been done already.
      outcome := 'decide_again';
    else
      outcome := 'dispatched';
    end if;

    if outcome = 'dispatched' then
      sent := sent || a.id;
      operations := operations || a.operation_digest;
      if a.gated and a.state = 'prepared' then
        consumed := consumed || p.id;
      end if;
      state := 'dispatched';
      attempt := a.attempt + 1;
      told := told || row(r.id, 'action_dispatched', jsonb_strip_nulls(jsonb_build_object(
        'action', a.id, 'attempt', attempt, 'approval', p.id, 'epoch', c.epoch)))::new_event;
    end if;
    return next;
  end loop;

  if cardinality(sent) > 0 then
    update actions t set state = 'dispatched', attempt = t.attempt + 1, held_by = null, reconcile_tries = 0,
      first_dispatched_at = coalesce(t.first_dispatched_at, at_time), dispatched_at = at_time,
      deadline_at = at_time + (t.send_within_ms + t.call_timeout_ms) * interval '1 millisecond',
      absent_after = at_time + (t.send_within_ms + t.call_timeout_ms + coalesce(t.settles_within_ms, 0)) * interval '1 millisecond',
      reconcile_after = at_time + (t.send_within_ms + t.call_timeout_ms) * interval '1 millisecond'
    where t.tenant = p_tenant and t.id = any (sent);
    update approvals t set state = 'consumed' where t.tenant = p_tenant and t.id = any (consumed);
    perform append_events(p_tenant, told);
  end if;
end
$$;

-- A prepared gated action that was asked for without a decision that still stands. Returns why it will not be executed.
create function refuse_undecided(a actions, p approvals) returns text
language plpgsql
as $$
declare
  why text := coalesce(p.state, 'undecided');
begin
  if p.state = 'approved' then
    update approvals t set state = 'expired' where t.tenant = a.tenant and t.id = p.id;
    perform append_event(a.tenant, a.run_id, 'approval_expired', jsonb_build_object('approval', p.id, 'action', a.id));
    why := 'expired';
  end if;
  if a.attempt = 0 or why in ('rejected', 'expired', 'revoked', 'invalidated', 'superseded') then
    perform close_action(a.tenant, a.run_id, a.id, why);
  end if;
  return why;
end
$$;

create type settle_call as (n integer, run uuid, action uuid, attempt integer, outcome text, source text, receipt uuid,
  sealed_receipt bytea, sealed_result bytea, reason text, epoch integer, backoff_ms bigint, asked_at timestamptz);
-- A settle_call with the rows it is about, whether its receipt is new, and where it moves the action; null: nowhere.
create type settlement as (call settle_call, run runs, action actions, is_new boolean, next_state text);

-- Settle: what is known about one attempt. Compare-and-set on (action, attempt, open state), never fenced: evidence
-- is kept from whoever holds it. The call's outcome: succeeded | failed | never_sent | unknown | absent | different
-- | cannot_say | abandoned. A worker settling unknown suspends its run in this same transaction (epoch; null for others).
-- outcome: settled | kept (stored as evidence, nothing moved) | contradiction | not_found.
create function settle_actions(p_tenant text, p_calls json) returns table (n integer, outcome text, run_status text)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  tenant_named text := set_config('countersign.tenant', p_tenant, true);
  asked settle_call[] := array(select c from json_populate_recordset(null::settle_call, p_calls) as c);
  run_ids uuid[] := array(select k.run from unnest(asked) k);
  action_ids uuid[] := array(select k.action from unnest(asked) k);
  stored uuid[];
  settlements settlement[];
  s settlement;
begin
  perform 1 from runs t where t.tenant = p_tenant and t.id = any (run_ids) order by t.id for no key update;
  with made as (
    insert into receipts (tenant, id, action_id, run_id, attempt, source, outcome, sealed)
    select p_tenant, k.receipt, k.action, k.run, k.attempt, k.source, k.outcome, k.sealed_receipt
    from unnest(asked) k
    join actions t on t.tenant = p_tenant and t.id = k.action and t.run_id = k.run and t.id = any (action_ids)
    on conflict (tenant, id) do nothing
    returning id)
  select coalesce(array_agg(made.id), '{}') into stored from made;

  -- An action that has moved to another run comes last: its evidence must find everything that follows from the others'.
  select array_agg(row(k, t, a, k.receipt = any (stored), case when k.receipt = any (stored) then meaning.next_state end)::settlement
      order by a.id is null)
    into settlements
  from unnest(asked) k
  left join runs t on t.tenant = p_tenant and t.id = k.run and t.id = any (run_ids)
  left join actions a on a.tenant = p_tenant and a.id = k.action and a.run_id = k.run and a.id = any (action_ids)
  cross join lateral (select a.state in ('dispatched', 'outcome_unknown') as open, a.attempt = k.attempt as current) about
  cross join lateral (select case
    -- Any attempt's proof is the proof of an idempotent key: one key, one effect.
    when k.outcome = 'succeeded' and (current or a.recovery = 'idempotent') and (open or a.state = 'prepared') then 'succeeded'
    when k.outcome = 'failed' and current and open then 'failed'
    when k.outcome = 'abandoned' and current and a.state = 'outcome_unknown' then 'abandoned'
    -- The sender's own proof, whoever has called the attempt unknown since. Under an idempotent key it closes this
    -- attempt only: an earlier one that was not proven never sent may have taken effect.
    when k.outcome = 'never_sent' and current and open then
      case when a.recovery = 'idempotent' and a.attempt > (
             select count(distinct e.attempt) from receipts e
             where e.tenant = p_tenant and e.action_id = a.id and e.outcome = 'never_sent')
           then 'outcome_unknown' else 'prepared' end
    -- A person who has looked may say what no look-up can, but not while the request may still be on its way.
    when k.outcome = 'absent' and current and k.source = 'person' and a.state = 'outcome_unknown'
      and clock_timestamp() > a.absent_after then 'prepared'
    when k.outcome = 'absent' and current and open and k.asked_at > a.absent_after and a.reissue = 'automatic' then 'prepared'
    when k.outcome = 'unknown' and current and a.state = 'dispatched' then 'outcome_unknown'
  end as next_state) meaning;

  update actions t set state = m.next_state, reason = (m.call).reason,
    sealed_result = coalesce((m.call).sealed_result, t.sealed_result),
    settled_at = case when m.next_state in ('succeeded', 'failed', 'abandoned') then clock_timestamp() end,
    reconcile_after = case when m.next_state = 'outcome_unknown'
      then clock_timestamp() + coalesce((m.call).backoff_ms, 0) * interval '1 millisecond' end
  from unnest(settlements) m
  where m.next_state is not null and t.tenant = p_tenant and t.id = (m.action).id and t.id = any (action_ids);
  perform append_events(p_tenant, array_agg(row((m.run).id,
      case when m.next_state = 'prepared' then 'action_proven_not_executed' else 'action_' || m.next_state end,
      jsonb_strip_nulls(jsonb_build_object('action', (m.action).id, 'attempt', (m.call).attempt, 'source', (m.call).source,
        'receipt', (m.call).receipt, 'reason', (m.call).reason)))::new_event))
    from unnest(settlements) m where m.next_state is not null;

  foreach s in array settlements loop
    n := (s.call).n;
    if (s.action).id is null then
      select e.outcome, e.run_status into outcome, run_status from settle_elsewhere(p_tenant, s.call) e;
    elsif not s.is_new then
      outcome := 'kept';
      run_status := (s.run).status;
    elsif s.next_state is null then
      select e.outcome, e.run_status into outcome, run_status from keep_evidence(s.call, s.run, s.action) e;
    else
      outcome := 'settled';
      run_status := follow_settlement(s);
    end if;
    return next;
  end loop;
end
$$;

-- A restart has moved the action to the new run, and whoever holds evidence still names the old one.
create function settle_elsewhere(p_tenant text, c settle_call, out outcome text, out run_status text)
language plpgsql
as $$
begin
  select t.run_id into c.run from actions t where t.tenant = p_tenant and t.id = c.action and t.run_id <> c.run;
  c.epoch := null;
  outcome := 'not_found';
  if found then
    select s.outcome, s.run_status into outcome, run_status from settle_actions(p_tenant, json_build_array(c)) s;
  end if;
end
$$;

-- What follows from evidence that moves no action.
create function keep_evidence(c settle_call, r runs, a actions, out outcome text, out run_status text)
language plpgsql
as $$
declare
  open boolean := a.state in ('dispatched', 'outcome_unknown');
  current boolean := a.attempt = c.attempt;
begin
  outcome := 'kept';
  run_status := r.status;
  -- Proof of an effect that the ledger believes did not happen, or happened in another attempt, is never silent.
  -- Every attempt under an idempotent key is answered with the same effect.
  -- A look-up answers for the key, whichever attempt it was asked about: begun after this attempt was sent, what it
  -- found may be this attempt's; begun before, it is an older one's effect, and there may be two now.
  if c.outcome = 'succeeded' and (a.state in ('failed', 'not_executed', 'abandoned')
      or (not current and a.recovery <> 'idempotent'
          and not (c.source = 'lookup' and coalesce(c.asked_at >= a.dispatched_at, false)
            and (open or a.state = 'succeeded')))) then
    perform append_event(a.tenant, r.id, 'contradiction', jsonb_build_object('code', 'CONTRADICTION',
      'action', a.id, 'attempt', c.attempt, 'state', a.state, 'current_attempt', a.attempt, 'source', c.source));
    outcome := 'contradiction';
    return;
  end if;
  -- A sender that comes back after its attempt was called absent and another was sent: never silent.
  if c.source = 'worker' and c.outcome = 'unknown' and not current and a.recovery <> 'idempotent' then
    perform append_event(a.tenant, r.id, 'action_sender_unsure', jsonb_build_object('action', a.id,
      'attempt', c.attempt, 'current_attempt', a.attempt));
  end if;
  -- An answer about an older attempt says nothing of the one that is out now.
  if current and a.state = 'outcome_unknown' and c.outcome in ('absent', 'different', 'cannot_say') then
    update actions t set reconcile_after = clock_timestamp() + coalesce(c.backoff_ms, 0) * interval '1 millisecond'
    where t.tenant = a.tenant and t.id = a.id;
    perform append_event(a.tenant, r.id, 'action_asked', jsonb_strip_nulls(jsonb_build_object(
      'action', a.id, 'attempt', c.attempt, 'answer', c.outcome, 'reason', c.reason)));
    run_status := settle_run_status(a.tenant, r.id, false);
  end if;
end
$$;

-- What follows for the approval and the run once the action has moved. Returns the run's status after.
create function follow_settlement(s settlement) returns text
language plpgsql
as $$
declare
  c settle_call := s.call;
  r runs := s.run;
  a actions := s.action;
  suspends boolean;
begin
  if s.next_state = 'prepared' then
    -- Proven not executed: the authority is handed back, and can expire or be revoked like any other.
    update approvals t set state = 'approved' where t.tenant = a.tenant and t.action_id = a.id and t.state = 'consumed';
  elsif s.next_state = 'succeeded' and a.state = 'prepared' then
    update approvals t set state = 'consumed' where t.tenant = a.tenant and t.action_id = a.id and t.state = 'approved';
    if c.source <> 'transaction' then
      perform append_event(a.tenant, r.id, 'contradiction', jsonb_build_object('code', 'CONTRADICTION',
        'action', a.id, 'attempt', c.attempt, 'state', a.state, 'source', c.source));
    end if;
  end if;
  -- Proof is progress, whoever brings it; while a worker holds the run its own claim has yet to be counted.
  if s.next_state in ('succeeded', 'failed', 'abandoned') and r.attempts_in_round > (r.status = 'running')::integer then
    update runs t set attempts_in_round = 0 where t.tenant = a.tenant and t.id = r.id;
  end if;
  -- A worker that cannot prove its outcome suspends in this transaction; everybody else lets the status be computed.
  suspends := s.next_state in ('outcome_unknown', 'prepared') and coalesce(r.epoch = c.epoch, false);
  if r.status <> 'running' or suspends then
    -- Only what is sent again waits for its back-off; an outcome that is proven is news at once.
    return settle_run_status(a.tenant, r.id, suspends,
      case when s.next_state in ('outcome_unknown', 'prepared') then coalesce(c.backoff_ms, 0) else 0 end);
  end if;
  return r.status;
end
$$;
