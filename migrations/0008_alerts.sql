-- Countersign, migration 8: when the machine is at its end, a person hears of it. Look-ups that are spent, parks that
-- back off, notifications, the fleet in numbers.

-- A look-up's answer, and the end of asking: an action that p_budget look-ups of its latest attempt have not proven
-- waits for a named person. Counted on the row that settle_action has locked, so two reconcilers at once spend no more
-- than they asked. p_reason says why the provider could not be asked, or is null.
-- outcome: as settle_action's. waits: this very answer was the last one.
create function settle_lookup(p_tenant text, p_run uuid, p_action uuid, p_attempt integer, p_outcome text,
  p_receipt uuid, p_sealed_receipt bytea, p_sealed_result bytea, p_reason text, p_backoff_ms bigint, p_asked_at timestamptz,
  p_budget integer, out outcome text, out run_status text, out waits boolean)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  spent actions;
begin
  select s.outcome, s.run_status into outcome, run_status from settle_action(p_tenant, p_run, p_action, p_attempt,
    p_outcome, 'lookup', p_receipt, p_sealed_receipt, p_sealed_result, p_reason, null, p_backoff_ms, p_asked_at) s;
  waits := false;
  if outcome <> 'kept' then
    return;
  end if;
  update actions t set reconcile_after = null, reason = 'LOOKUPS_SPENT'
  where t.tenant = p_tenant and t.id = p_action and t.state = 'outcome_unknown' and t.recovery = 'lookup'
    and t.attempt = p_attempt and t.reconcile_tries >= p_budget and t.reconcile_after is not null
  returning * into spent;
  waits := found;
  if waits then
    perform append_event(p_tenant, spent.run_id, 'action_waits_for_person', jsonb_strip_nulls(jsonb_build_object(
      'action', p_action, 'attempt', p_attempt, 'reason', 'LOOKUPS_SPENT', 'lookups', spent.reconcile_tries,
      'answer', p_outcome, 'why', p_reason)));
  end if;
end
$$;

-- A named person wants the provider asked again, now and with a fresh budget: its access has been mended.
-- outcome: asking | conflict (the outcome is not unknown) | no_lookup (this kind is never asked about) | not_found.
create function ask_action(p_tenant text, p_action uuid, p_subject text,
  out outcome text, out run_id uuid, out run_status text, out state text, out recovery text)
language plpgsql security definer set search_path = countersign, pg_temp
as $$
declare
  a actions;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select t.run_id into run_id from actions t where t.tenant = p_tenant and t.id = p_action;
  if run_id is null then
    outcome := 'not_found';
    return;
  end if;
  select t.status into run_status from runs t where t.tenant = p_tenant and t.id = run_id for no key update;
  select * into a from actions t where t.tenant = p_tenant and t.id = p_action for no key update;
  state := a.state;
  recovery := a.recovery;
  outcome := case
    when a.state <> 'outcome_unknown' then 'conflict'
    when a.recovery <> 'lookup' then 'no_lookup'
    else 'asking'
  end;
  if outcome = 'asking' then
    update actions t set reconcile_tries = 0, reconcile_after = clock_timestamp(), reason = 'ASKED_AGAIN'
    where t.tenant = p_tenant and t.id = p_action;
  end if;
  perform append_event(p_tenant, run_id, 'action_ask_requested', jsonb_strip_nulls(jsonb_build_object('action', p_action,
    'attempt', a.attempt, 'by', p_subject, 'refused', nullif(outcome, 'asking'))));
end
$$;

revoke all on function settle_lookup(text, uuid, uuid, integer, text, uuid, bytea, bytea, text, bigint, timestamptz, integer),
  ask_action(text, uuid, text) from public;
grant execute on function settle_lookup(text, uuid, uuid, integer, text, uuid, bytea, bytea, text, bigint, timestamptz, integer)
  to countersign_worker;
grant execute on function ask_action(text, uuid, text) to countersign_api;
