-- Countersign, migration 8: when the machine is at its end, a person hears of it. Look-ups that are spent, parks that
-- back off, notifications, the fleet in numbers.

-- A look-up's answer, and the end of asking: an action that p_budget look-ups of its latest attempt have not proven
-- waits for a named person. Counted under the lock that settle_actions has taken, so two reconcilers at once spend no more
-- than they asked. p_reason says why the provider could not be asked, or is null.
-- outcome: as settle_actions'. waits: this very answer was the last one.
create function settle_lookup(p_tenant text, p_run uuid, p_action uuid, p_attempt integer, p_outcome text,
  p_receipt uuid, p_sealed_receipt bytea, p_sealed_result bytea, p_reason text, p_backoff_ms bigint, p_asked_at timestamptz,
  p_budget integer, out outcome text, out run_status text, out waits boolean)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  spent actions;
begin
  select s.outcome, s.run_status into outcome, run_status from settle_actions(p_tenant, json_build_array(json_build_object(
    'run', p_run, 'action', p_action, 'attempt', p_attempt, 'outcome', p_outcome, 'source', 'lookup', 'receipt', p_receipt,
    'sealed_receipt', p_sealed_receipt, 'sealed_result', p_sealed_result, 'reason', p_reason, 'backoff_ms', p_backoff_ms,
    'asked_at', p_asked_at))) s;
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

-- Parks: a run that a worker claimed and could not carry (a key is missing, a tool is not guarded) is tried again after a
-- growing wait, without spending an attempt. Counted since a capable worker last started, and since its last progress:
-- either may have put it right.
alter table runs add column parked_times integer not null default 0, add column parked_at timestamptz;
comment on column runs.parked_times is 'How often in a row workers found that they could not carry it.';

create function worker_started_since(r runs, p_at timestamptz) returns setof uuid
language sql stable
as $$
  select w.id from workers w
  where w.kind = 'resume' and w.stopped_at is null and w.alive_until > clock_timestamp() and w.started_at > p_at
    and r.workflow || '@' || r.version = any (w.workflows)
$$;

-- The caller holds the lock and has just parked it.
create function count_park(p_tenant text, p_run uuid) returns void
language plpgsql
as $$
begin
  update runs r set parked_at = clock_timestamp(),
    parked_times = case
      when exists (select 1 from worker_started_since(r, r.parked_at))
        or exists (select 1 from events e where e.tenant = p_tenant and e.run_id = p_run and e.at > r.parked_at
          and e.kind in ('checkpoint_stored', 'action_prepared', 'action_succeeded', 'action_failed'))
      then 1 else r.parked_times + 1 end
  where r.tenant = p_tenant and r.id = p_run;
end
$$;

-- Until when a sweep leaves a parked run alone: the sweep's patience, doubled with each park in a row, at most 10 minutes.
-- Null, or past: it may be tried.
create function parked_until(r runs, p_patience_ms bigint) returns timestamptz
language sql stable
as $$
  select r.parked_at + least(p_patience_ms * power(2, least(r.parked_times - 1, 20)), greatest(p_patience_ms, 600000)) * interval '1 millisecond'
  where r.status = 'parked' and r.reason <> 'NO_CAPABLE_WORKER' and r.parked_times > 0
    and not exists (select 1 from worker_started_since(r, r.parked_at))
$$;

revoke all on function worker_started_since(runs, timestamptz), count_park(text, uuid), parked_until(runs, bigint) from public;
grant execute on function worker_started_since(runs, timestamptz), count_park(text, uuid), parked_until(runs, bigint)
  to countersign_worker;

-- Notifications: what a person, or whatever calls one, should hear of without looking. Written in the transaction that
-- causes them, delivered at least once by the relay process. A table of its own, so that neither the outbox's hot path
-- nor a resume waits for a receiver.
create table notifications (
  id uuid primary key default gen_random_uuid(),
  tenant text not null,
  run_id uuid not null,
  kind text not null constraint "a notification is of a known kind" check (kind in (
    'contradiction', 'action_waits_for_person', 'run_dead_lettered', 'security_alert', 'outbox_dead', 'approval_requested')),
  code text,
  action_id uuid,
  approval_id uuid,
  created_at timestamptz not null default clock_timestamp(),
  available_at timestamptz not null default clock_timestamp(),
  tries integer not null default 0,
  claimed_until timestamptz,
  claim_token uuid,
  delivered_at timestamptz
);
comment on table notifications is 'What a person should hear of. Ids and codes only; delivered at least once, under a stable id.';
comment on column notifications.kind is 'The kind of the event that caused it, or outbox_dead. All but approval_requested are alerts.';
comment on column notifications.tries is 'Deliveries that failed. There is no last one: the waits between them grow to a bound.';
-- Alerts first: a morning's worth of requests must not stand before a contradiction.
create index notifications_to_deliver on notifications ((kind = 'approval_requested'), available_at) where delivered_at is null;
create index notifications_alerts on notifications (kind) where kind <> 'approval_requested';
create index notifications_by_age on notifications (created_at desc, id);

alter table notifications enable row level security;
alter table notifications force row level security;
create policy "only the named tenant" on notifications using (tenant = nullif(current_setting('countersign.tenant', true), ''));
create policy "loops deliver" on notifications for all to countersign_loops using (true);

-- An event that a person should hear of, from append_event, in the caller's transaction. Not a trigger: its condition
-- would cost every other event as much as a sixth of its insert.
create function notify_of_event(p_tenant text, p_run uuid, p_kind text, p_data jsonb) returns void
language plpgsql
as $$
begin
  insert into notifications (tenant, run_id, kind, code, action_id, approval_id)
  values (p_tenant, p_run, p_kind,
    coalesce(p_data ->> 'code', p_data ->> 'reason', case when p_kind = 'action_waits_for_person' then 'MAY_NOT_REPEAT' end),
    (p_data ->> 'action')::uuid, (p_data ->> 'approval')::uuid);
end
$$;

-- An announcement that could not be published. Only the statement that gives a row up names dead_at.
create function notify_of_dead_outbox() returns trigger
language plpgsql security definer set search_path = countersign, pg_temp
as $$
begin
  insert into notifications (tenant, run_id, kind, code) values (new.tenant, new.run_id, 'outbox_dead', new.dead_reason);
  return null;
end
$$;
create trigger notify after update of dead_at on outbox for each row
  when (old.dead_at is null and new.dead_at is not null)
  execute function notify_of_dead_outbox();

-- Notifier: takes due notifications for p_claim_ms, alerts first. As claim_outbox: the network happens outside any
-- transaction, and a claim lapses with whoever held it.
create function claim_notifications(p_limit integer, p_claim_ms integer, p_token uuid)
returns table (id uuid, kind text, tenant text, run_id uuid, action_id uuid, approval_id uuid, code text, at timestamptz)
language sql security definer set search_path = countersign, pg_temp
as $$
  update notifications n set claim_token = p_token, claimed_until = clock_timestamp() + p_claim_ms * interval '1 millisecond'
  from (
    select c.id from notifications c
    where c.delivered_at is null and c.available_at <= clock_timestamp()
      and (c.claimed_until is null or c.claimed_until < clock_timestamp())
    order by (c.kind = 'approval_requested'), c.available_at limit p_limit for update skip locked) due
  where n.id = due.id
  returning n.id, n.kind, n.tenant, n.run_id, n.action_id, n.approval_id, n.code, n.created_at
$$;

create function mark_notifications_delivered(p_ids uuid[], p_token uuid) returns void
language sql security definer set search_path = countersign, pg_temp
as $$
  update notifications set delivered_at = clock_timestamp(), claimed_until = null
  where id = any (p_ids) and claim_token = p_token and delivered_at is null
$$;

-- Not delivered: tried again after p_first_ms, doubled with each try up to p_most_ms, with up to a fifth of jitter. Never
-- given up: an alert that nobody could receive is still true, and the gauge of what waits says that the receiver is gone.
create function mark_notifications_failed(p_ids uuid[], p_token uuid, p_first_ms integer, p_most_ms integer) returns void
language sql security definer set search_path = countersign, pg_temp
as $$
  update notifications set claimed_until = null, tries = tries + 1,
    available_at = clock_timestamp()
      + least(p_first_ms * power(2, least(tries, 20)), p_most_ms) * (1 + random() / 5) * interval '1 millisecond'
  where id = any (p_ids) and claim_token = p_token and delivered_at is null
$$;

grant create on schema countersign to countersign_loops;
alter function notify_of_dead_outbox() owner to countersign_loops;
alter function claim_notifications(integer, integer, uuid) owner to countersign_loops;
alter function mark_notifications_delivered(uuid[], uuid) owner to countersign_loops;
alter function mark_notifications_failed(uuid[], uuid, integer, integer) owner to countersign_loops;
revoke create on schema countersign from countersign_loops;
revoke all on function notify_of_event(text, uuid, text, jsonb), notify_of_dead_outbox(), claim_notifications(integer, integer, uuid),
  mark_notifications_delivered(uuid[], uuid), mark_notifications_failed(uuid[], uuid, integer, integer) from public;
grant select, insert, update on notifications to countersign_loops;
grant select, insert on notifications to countersign_api;
grant select, insert on notifications to countersign_worker;
grant execute on function notify_of_event(text, uuid, text, jsonb) to countersign_api, countersign_worker;
grant execute on function claim_notifications(integer, integer, uuid), mark_notifications_delivered(uuid[], uuid),
  mark_notifications_failed(uuid[], uuid, integer, integer) to countersign_relay;

-- The fleet in numbers, for one scrape: counts and ages over every tenant, and nothing that tells one from another. Runs
-- that have ended, and what was sent, are not counted: those numbers only grow, and would be read row by row.
create function fleet_numbers() returns table (name text, label text, value integer)
language sql stable security definer set search_path = countersign, pg_temp
as $$
  select 'runs', r.status, count(*)::integer from runs r where r.ended_at is null group by r.status
  union all
  select 'oldest_ready_seconds', '', floor(extract(epoch from clock_timestamp() - min(r.changed_at)))::integer
    from runs r where r.ended_at is null and r.status = 'ready' having count(*) > 0
  union all
  select 'approvals_pending', '', count(*) filter (where p.state = 'pending')::integer from approvals p
    where p.lapses_at is not null
  union all
  select 'actions_open', a.state, count(*)::integer from actions a
    where a.state in ('dispatched', 'outcome_unknown') group by a.state
  union all
  select 'actions_waiting_for_person', '', count(*)::integer from actions a
    where a.state = 'outcome_unknown' and a.reconcile_after is null
  union all
  select 'outbox_unsent', '', count(*)::integer from outbox o where o.sent_at is null and o.dead_at is null
  union all
  select 'outbox_oldest_due_seconds', '', floor(extract(epoch from clock_timestamp() - min(o.available_at)))::integer
    from outbox o where o.sent_at is null and o.dead_at is null and o.available_at <= clock_timestamp() having count(*) > 0
  union all
  select 'outbox_dead', '', count(*)::integer from outbox o where o.dead_at is not null
  union all
  select 'dead_letters_open', d.class, count(*)::integer from dead_letters d where d.closed_as is null group by d.class
  union all
  select 'notifications_undelivered', '', count(*)::integer from notifications n where n.delivered_at is null
  union all
  select 'alerts', n.kind, count(*)::integer from notifications n where n.kind <> 'approval_requested' group by n.kind
  union all
  select 'workers_alive', w.kind, count(*)::integer from workers w
    where w.stopped_at is null and w.alive_until > clock_timestamp() group by w.kind
$$;
create index dead_letters_open on dead_letters (class) where closed_as is null;
create policy "loops see ids" on dead_letters for select to countersign_loops using (true);
grant select (class, closed_as) on dead_letters to countersign_loops;
grant select (changed_at) on runs to countersign_loops;
grant create on schema countersign to countersign_loops;
alter function fleet_numbers() owner to countersign_loops;
revoke create on schema countersign from countersign_loops;
revoke all on function fleet_numbers() from public;
grant execute on function fleet_numbers() to countersign_api;
