-- Countersign, migration 3: actions. Mint (with the journal), intend, settle, reconcile.

-- Journal: one model response and the actions it asks for, in one statement, before the runner acts on either.
-- The action id, minted here, is the operation key for ever. outcome: stored | exists (a double won) | fenced.
create function journal_response(p_tenant text, p_run uuid, p_epoch integer, p_call jsonb, p_actions jsonb)
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
  if exists (select 1 from model_calls m where m.tenant = p_tenant and m.run_id = p_run and m.segment = r.segment
             and m.path = p_call ->> 'path' and m.n = (p_call ->> 'n')::integer and m.take = 0) then
    return 'exists';
  end if;
  perform store_model_calls(p_tenant, p_run, r.segment, p_epoch, jsonb_build_array(p_call));
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

-- Is an identical action in the open, or has one succeeded since this one was decided? The caller holds the run's lock;
-- who asks first for an operation keeps the others out until its commit, so that two looks never both find nothing.
-- Returns null: it may go; held: it is marked as waiting; decide_again.
create function find_identical(a actions, p_decided_at timestamptz) returns text
language plpgsql
as $$
declare
  event integer;
  open uuid;
  done boolean;
begin
  if a.operation_digest is null then
    return null;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('countersign operation ' || a.tenant || ' ' || a.operation_digest, 0));
  -- A statement of its own: it must see what was committed while it waited.
  select (array_agg(o.id) filter (where o.state in ('dispatched', 'outcome_unknown')))[1],
    bool_or(o.state = 'succeeded' and o.settled_at > p_decided_at)
    into open, done
  from actions o where o.tenant = a.tenant and o.operation_digest = a.operation_digest and o.id <> a.id;
  if open is not null then
    update actions t set held_by = open where t.tenant = a.tenant and t.id = a.id;
    event := append_event(a.tenant, a.run_id, 'action_held', jsonb_build_object('action', a.id, 'by', open));
    return 'held';
  end if;
  -- Who decided did not know that it had been done already.
  return case when done then 'decide_again' end;
end
$$;

-- Intend: the last gate before the world. One statement of the worker, fenced, under the locks run, operation.
-- outcome: dispatched (call now, this attempt) | receipt (settled before: answer from the ledger)
--   | refused (not executed, with the reason) | held (in flight or unknown here or elsewhere: suspend)
--   | decide_again (an identical action has succeeded since the decision: request_again)
--   | digest_mismatch (quarantined) | fenced.
create function intend_action(p_tenant text, p_run uuid, p_epoch integer, p_action uuid, p_tool text,
  p_proposed_digest text, p_effective_digest text,
  out outcome text, out state text, out reason text, out attempt integer, out sealed_result bytea)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  tenant_named text := set_config('countersign.tenant', p_tenant, true);
  r runs;
  a actions;
  p approvals;
  found_rows record;
  at_time timestamptz;
  event integer;
begin
  select * into r from runs t where t.tenant = p_tenant and t.id = p_run for no key update;
  if r.epoch is distinct from p_epoch or r.status <> 'running' then
    outcome := 'fenced';
    return;
  end if;
  select t as action, q as approval into found_rows from actions t
  left join lateral (select * from approvals l where l.tenant = t.tenant and l.action_id = t.id
    order by l.created_at desc limit 1) q on true
  where t.tenant = p_tenant and t.id = p_action and t.run_id = p_run;
  a := found_rows.action;
  p := found_rows.approval;

  -- Before anything else, also before a stored receipt: is this the call that was reviewed? (I2)
  if a.id is null or a.tool is distinct from p_tool or a.proposed_digest is distinct from p_proposed_digest
     or (a.effective_digest is not null and a.effective_digest is distinct from p_effective_digest)
     or (a.gated and p.state in ('approved', 'consumed') and p.fingerprint is distinct from fingerprint_of(a, p)) then
    perform settle_quarantined(p_tenant, p_run, 'DIGEST_MISMATCH', p_action);
    outcome := 'digest_mismatch';
    return;
  end if;

  state := a.state;
  reason := a.reason;
  if a.state in ('succeeded', 'failed', 'abandoned') then
    outcome := 'receipt';
    sealed_result := a.sealed_result;
    attempt := a.attempt;
    return;
  elsif a.state = 'not_executed' then
    outcome := 'refused';
    return;
  end if;

  at_time := clock_timestamp();
  if a.state in ('dispatched', 'outcome_unknown') then
    if r.cancel_requested_at is not null or not may_repeat(a) then
      outcome := 'held';
      return;
    end if;
  else
    if r.cancel_requested_at is not null then
      perform close_action(p_tenant, p_run, p_action, 'cancelled');
      outcome := 'refused';
      reason := 'cancelled';
      return;
    end if;
    if a.gated then
      if p.state = 'approved' and at_time >= p.execute_before then
        update approvals t set state = 'expired' where t.tenant = p_tenant and t.id = p.id;
        perform append_event(p_tenant, p_run, 'approval_expired', jsonb_build_object('approval', p.id, 'action', p_action));
        p.state := 'expired';
      end if;
      if p.state is distinct from 'approved' then
        if a.attempt = 0 or p.state in ('rejected', 'expired', 'revoked', 'invalidated', 'superseded') then
          perform close_action(p_tenant, p_run, p_action, coalesce(p.state, 'undecided'));
        end if;
        outcome := 'refused';
        reason := coalesce(p.state, 'undecided');
        return;
      end if;
    end if;
    outcome := find_identical(a, case when a.gated then p.decided_at end);
    if outcome is not null then
      return;
    end if;
  end if;

  update actions t set state = 'dispatched', attempt = t.attempt + 1, held_by = null, reconcile_tries = 0,
    first_dispatched_at = coalesce(t.first_dispatched_at, at_time), dispatched_at = at_time,
    deadline_at = at_time + (t.send_within_ms + t.call_timeout_ms) * interval '1 millisecond',
    absent_after = at_time + (t.send_within_ms + t.call_timeout_ms + coalesce(t.settles_within_ms, 0)) * interval '1 millisecond',
    reconcile_after = at_time + (t.send_within_ms + t.call_timeout_ms) * interval '1 millisecond'
  where t.tenant = p_tenant and t.id = p_action returning t.attempt into attempt;
  if a.gated and a.state = 'prepared' then
    update approvals t set state = 'consumed' where t.tenant = p_tenant and t.id = p.id;
  end if;
  event := append_event(p_tenant, p_run, 'action_dispatched', jsonb_strip_nulls(jsonb_build_object(
    'action', p_action, 'attempt', attempt, 'approval', p.id, 'epoch', p_epoch)));
  outcome := 'dispatched';
  state := 'dispatched';
end
$$;

-- Settle: what is known about one attempt. Compare-and-set on (action, attempt, open state), never fenced: evidence
-- is kept from whoever holds it. p_outcome: succeeded | failed | never_sent | unknown | absent | different | cannot_say
-- | abandoned. A worker settling unknown suspends its run in this same transaction (p_epoch; null for others).
-- outcome: settled | kept (stored as evidence, nothing moved) | contradiction | not_found.
create function settle_action(p_tenant text, p_run uuid, p_action uuid, p_attempt integer, p_outcome text, p_source text,
  p_receipt uuid, p_sealed_receipt bytea, p_sealed_result bytea, p_reason text, p_epoch integer, p_backoff_ms bigint,
  p_asked_at timestamptz, out outcome text, out run_status text)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  tenant_named text := set_config('countersign.tenant', p_tenant, true);
  r runs;
  a actions;
  current boolean;
  open boolean;
  suspends boolean;
  next_state text;
  moved_to uuid;
  event integer;
begin
  select * into r from runs t where t.tenant = p_tenant and t.id = p_run for no key update;
  select * into a from actions t where t.tenant = p_tenant and t.id = p_action and t.run_id = p_run;
  if a.id is null then
    -- A restart has moved it to the new run, and whoever holds evidence still names the old one.
    select t.run_id into moved_to from actions t where t.tenant = p_tenant and t.id = p_action and t.run_id <> p_run;
    if moved_to is null then
      outcome := 'not_found';
    else
      select s.outcome, s.run_status into outcome, run_status from settle_action(p_tenant, moved_to, p_action, p_attempt,
        p_outcome, p_source, p_receipt, p_sealed_receipt, p_sealed_result, p_reason, null, p_backoff_ms, p_asked_at) s;
    end if;
    return;
  end if;
  run_status := r.status;
  insert into receipts (tenant, id, action_id, run_id, attempt, source, outcome, sealed)
  values (p_tenant, p_receipt, p_action, p_run, p_attempt, p_source, p_outcome, p_sealed_receipt)
  on conflict (tenant, id) do nothing;
  if not found then
    outcome := 'kept';
    return;
  end if;

  open := a.state in ('dispatched', 'outcome_unknown');
  current := a.attempt = p_attempt;
  next_state := case
    -- Any attempt's proof is the proof of an idempotent key: one key, one effect.
    when p_outcome = 'succeeded' and (current or a.recovery = 'idempotent') and (open or a.state = 'prepared') then 'succeeded'
    when p_outcome = 'failed' and current and open then 'failed'
    when p_outcome = 'abandoned' and current and a.state = 'outcome_unknown' then 'abandoned'
    -- The sender's own proof, whoever has called the attempt unknown since. Under an idempotent key it closes this
    -- attempt only: an earlier one that was not proven never sent may have taken effect.
    when p_outcome = 'never_sent' and current and open then
      case when a.recovery = 'idempotent' and a.attempt > (
             select count(distinct t.attempt) from receipts t
             where t.tenant = p_tenant and t.action_id = p_action and t.outcome = 'never_sent')
           then 'outcome_unknown' else 'prepared' end
    -- A person who has looked may say what no look-up can, but not while the request may still be on its way.
    when p_outcome = 'absent' and current and p_source = 'person' and a.state = 'outcome_unknown'
      and clock_timestamp() > a.absent_after then 'prepared'
    when p_outcome = 'absent' and current and open and p_asked_at > a.absent_after and a.reissue = 'automatic' then 'prepared'
    when p_outcome = 'unknown' and current and a.state = 'dispatched' then 'outcome_unknown'
  end;

  if next_state is null then
    -- Proof of an effect that the ledger believes did not happen, or happened in another attempt, is never silent.
    -- Every attempt under an idempotent key is answered with the same effect.
    -- A look-up answers for the key, whichever attempt it was asked about: begun after this attempt was sent, what it
    -- found may be this attempt's; begun before, it is an older one's effect, and there may be two now.
    if p_outcome = 'succeeded' and (a.state in ('failed', 'not_executed', 'abandoned')
        or (not current and a.recovery <> 'idempotent'
            and not (p_source = 'lookup' and coalesce(p_asked_at >= a.dispatched_at, false)
              and (open or a.state = 'succeeded')))) then
      perform append_event(p_tenant, p_run, 'contradiction', jsonb_build_object('code', 'CONTRADICTION',
        'action', p_action, 'attempt', p_attempt, 'state', a.state, 'current_attempt', a.attempt, 'source', p_source));
      outcome := 'contradiction';
      return;
    end if;
    -- A sender that comes back after its attempt was called absent and another was sent: never silent.
    if p_source = 'worker' and p_outcome = 'unknown' and not current and a.recovery <> 'idempotent' then
      event := append_event(p_tenant, p_run, 'action_sender_unsure', jsonb_build_object('action', p_action,
        'attempt', p_attempt, 'current_attempt', a.attempt));
    end if;
    -- An answer about an older attempt says nothing of the one that is out now.
    if current and a.state = 'outcome_unknown' and p_outcome in ('absent', 'different', 'cannot_say') then
      update actions t set
        reconcile_after = clock_timestamp() + coalesce(p_backoff_ms, 0) * interval '1 millisecond'
      where t.tenant = p_tenant and t.id = p_action;
      perform append_event(p_tenant, p_run, 'action_asked', jsonb_strip_nulls(jsonb_build_object(
        'action', p_action, 'attempt', p_attempt, 'answer', p_outcome, 'reason', p_reason)));
      run_status := settle_run_status(p_tenant, p_run, false);
    end if;
    outcome := 'kept';
    return;
  end if;

  update actions t set state = next_state, reason = p_reason,
    sealed_result = coalesce(p_sealed_result, t.sealed_result),
    settled_at = case when next_state in ('succeeded', 'failed', 'abandoned') then clock_timestamp() end,
    reconcile_after = case when next_state = 'outcome_unknown'
      then clock_timestamp() + coalesce(p_backoff_ms, 0) * interval '1 millisecond' end
  where t.tenant = p_tenant and t.id = p_action;
  if next_state = 'prepared' then
    -- Proven not executed: the authority is handed back, and can expire or be revoked like any other.
    update approvals t set state = 'approved' where t.tenant = p_tenant and t.action_id = p_action and t.state = 'consumed';
  elsif next_state = 'succeeded' and not open then
    update approvals t set state = 'consumed' where t.tenant = p_tenant and t.action_id = p_action and t.state = 'approved';
  end if;
  event := append_event(p_tenant, p_run, case when next_state = 'prepared' then 'action_proven_not_executed' else 'action_' || next_state end,
    jsonb_strip_nulls(jsonb_build_object('action', p_action, 'attempt', p_attempt, 'source', p_source, 'receipt', p_receipt, 'reason', p_reason)));
  if a.state = 'prepared' and next_state = 'succeeded' and p_source <> 'transaction' then
    perform append_event(p_tenant, p_run, 'contradiction', jsonb_build_object('code', 'CONTRADICTION',
      'action', p_action, 'attempt', p_attempt, 'state', a.state, 'source', p_source));
  end if;
  -- Proof is progress, whoever brings it; while a worker holds the run its own claim has yet to be counted.
  if next_state in ('succeeded', 'failed', 'abandoned') and r.attempts_in_round > (r.status = 'running')::integer then
    update runs t set attempts_in_round = 0 where t.tenant = p_tenant and t.id = p_run;
  end if;
  -- A worker that cannot prove its outcome suspends in this transaction; everybody else lets the status be computed.
  suspends := next_state in ('outcome_unknown', 'prepared') and coalesce(r.epoch = p_epoch, false);
  if r.status <> 'running' or suspends then
    -- Only what is sent again waits for its back-off; an outcome that is proven is news at once.
    run_status := settle_run_status(p_tenant, p_run, suspends,
      case when next_state in ('outcome_unknown', 'prepared') then coalesce(p_backoff_ms, 0) else 0 end);
  end if;
  outcome := 'settled';
end
$$;
