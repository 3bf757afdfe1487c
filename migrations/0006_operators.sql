-- Countersign, migration 6: what only a named person may do. Replay a dead letter, release a quarantine, record the
-- outcome of an action that no machine can prove. Definer functions, so that the api needs no wider grant; the tenant's
-- policies still hold inside them.

alter table dead_letters add column closed_as text
  constraint "a dead letter is closed as one of three" check (closed_as in ('replayed', 'already_done', 'cancelled'));
comment on column dead_letters.closed_as is 'How a person''s replay found it; null while it is open.';
alter table outbox add column replayed_by text;
create index outbox_dead on outbox (dead_at) where dead_at is not null;

-- Replay: puts a given-up run back with a fresh attempt budget. The ledger decides what that means for each action, so
-- repeating it, or two operators at once, is harmless.
-- outcome: replayed | already_replayed | already_done (the run has ended) | session_busy | not_found.
create function replay_dead_letter(p_tenant text, p_dead_letter uuid, p_subject text, p_reason text,
  out outcome text, out run_id uuid, out run_status text)
language plpgsql security definer set search_path = countersign, pg_temp
as $$
declare
  d dead_letters;
  r runs;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select t.run_id into run_id from dead_letters t where t.tenant = p_tenant and t.id = p_dead_letter;
  if run_id is null then
    outcome := 'not_found';
    return;
  end if;
  select * into r from runs t where t.tenant = p_tenant and t.id = run_id for no key update;
  select * into d from dead_letters t where t.tenant = p_tenant and t.id = p_dead_letter for no key update;
  run_status := r.status;
  if r.status in ('completed', 'failed', 'cancelled', 'superseded') then
    outcome := 'already_done';
  elsif d.closed_as is not null or r.status <> 'dead_lettered' or d.round <> r.round then
    outcome := 'already_replayed';
  elsif r.session_id is not null and exists (select 1 from runs t where t.tenant = p_tenant and t.session_slot = r.session_id) then
    outcome := 'session_busy';
    return;
  else
    outcome := 'replayed';
  end if;
  if d.closed_as is null then
    update dead_letters t set closed_as = case when outcome = 'already_done' then 'already_done' else 'replayed' end,
      replayed_at = clock_timestamp(), replayed_by = p_subject, replay_reason = p_reason
    where t.tenant = p_tenant and t.id = p_dead_letter;
  end if;
  perform append_event(p_tenant, run_id, 'replay_' || outcome,
    jsonb_build_object('dead_letter', p_dead_letter, 'by', p_subject, 'round', d.round));
  if outcome = 'replayed' then
    update runs t set status = 'parked', session_slot = t.session_id, reason = null, round = t.round + 1, attempts_in_round = 0
    where t.tenant = p_tenant and t.id = run_id;
    run_status := settle_run_status(p_tenant, run_id, false);
  end if;
end
$$;

-- The same for an announcement that could not be published. outcome: replayed | already_replayed | not_found.
create function replay_outbox_row(p_tenant text, p_id uuid, p_subject text, out outcome text, out run_id uuid)
language plpgsql security definer set search_path = countersign, pg_temp
as $$
declare
  o outbox;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select t.run_id into run_id from outbox t where t.tenant = p_tenant and t.id = p_id;
  if run_id is null then
    outcome := 'not_found';
    return;
  end if;
  perform 1 from runs t where t.tenant = p_tenant and t.id = run_id for no key update;
  select * into o from outbox t where t.tenant = p_tenant and t.id = p_id for no key update;
  outcome := case when o.dead_at is null then 'already_replayed' else 'replayed' end;
  if outcome = 'replayed' then
    update outbox t set dead_at = null, dead_reason = null, failures = 0, available_at = clock_timestamp(), replayed_by = p_subject
    where t.tenant = p_tenant and t.id = p_id;
  end if;
  perform append_event(p_tenant, run_id, 'outbox_' || outcome, jsonb_build_object('outbox', p_id, 'by', p_subject));
end
$$;

-- A named operator has looked at a quarantined run and lets it go on. Its void approvals stay void, and a checkpoint
-- that is still damaged is quarantined again. outcome: released | conflict | not_found.
create function release_quarantine(p_tenant text, p_run uuid, p_subject text, p_reason text, out outcome text, out run_status text)
language plpgsql security definer set search_path = countersign, pg_temp
as $$
declare
  r runs;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs t where t.tenant = p_tenant and t.id = p_run for no key update;
  if not found then
    outcome := 'not_found';
    return;
  end if;
  outcome := case when r.status = 'quarantined' then 'released' else 'conflict' end;
  run_status := r.status;
  perform append_event(p_tenant, p_run, 'quarantine_' || outcome, jsonb_build_object('by', p_subject));
  if outcome = 'released' then
    update runs t set status = 'parked', reason = null, attempts_in_round = 0 where t.tenant = p_tenant and t.id = p_run;
    run_status := settle_run_status(p_tenant, p_run, false);
  end if;
end
$$;

-- A named person's word on the attempt they were shown of an action whose outcome no machine can prove, with their
-- evidence. p_verdict: succeeded | absent (not executed: the approval is handed back) | abandoned.
-- outcome: settled | kept | contradiction | conflict (nothing is open) | another_attempt (it has been sent again since)
--   | too_early (absent, and the request may still arrive until absent_after) | not_found.
create function resolve_action(p_tenant text, p_action uuid, p_attempt integer, p_verdict text, p_subject text, p_receipt uuid,
  p_sealed_evidence bytea, p_sealed_result bytea,
  out outcome text, out run_id uuid, out run_status text, out state text, out attempt integer, out absent_after timestamptz)
language plpgsql security definer set search_path = countersign, pg_temp
as $$
declare
  a actions;
  settled record;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select t.run_id into run_id from actions t where t.tenant = p_tenant and t.id = p_action;
  if run_id is null then
    outcome := 'not_found';
    return;
  end if;
  perform 1 from runs t where t.tenant = p_tenant and t.id = run_id for no key update;
  select * into a from actions t where t.tenant = p_tenant and t.id = p_action;
  state := a.state;
  attempt := a.attempt;
  absent_after := a.absent_after;
  outcome := case
    when a.state <> 'outcome_unknown' then 'conflict'
    when a.attempt <> p_attempt then 'another_attempt'
    when p_verdict = 'absent' and clock_timestamp() <= a.absent_after then 'too_early'
  end;
  perform append_event(p_tenant, run_id, 'action_judged', jsonb_strip_nulls(jsonb_build_object('action', p_action,
    'attempt', p_attempt, 'verdict', p_verdict, 'by', p_subject, 'receipt', p_receipt, 'refused', outcome)));
  if outcome is not null then
    return;
  end if;
  select * into settled from settle_actions(p_tenant, json_build_array(json_build_object(
    'run', run_id, 'action', p_action, 'attempt', p_attempt, 'outcome', p_verdict, 'source', 'person', 'receipt', p_receipt,
    'sealed_receipt', p_sealed_evidence, 'sealed_result', p_sealed_result, 'reason', 'PERSON')));
  outcome := settled.outcome;
  run_status := settled.run_status;
  select t.state into state from actions t where t.tenant = p_tenant and t.id = p_action;
end
$$;

revoke all on function replay_dead_letter(text, uuid, text, text), replay_outbox_row(text, uuid, text),
  release_quarantine(text, uuid, text, text), resolve_action(text, uuid, integer, text, text, uuid, bytea, bytea) from public;
grant execute on function replay_dead_letter(text, uuid, text, text), replay_outbox_row(text, uuid, text),
  release_quarantine(text, uuid, text, text), resolve_action(text, uuid, integer, text, text, uuid, bytea, bytea) to countersign_api;
