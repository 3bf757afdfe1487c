-- Countersign, migration 5: the cross-tenant loops. Each function hands out ids and nothing else; the work itself is
-- done inside the tenant. They belong to countersign_loops, whose policies and column grants allow just that.

-- Relay: takes due rows for p_claim_ms. A row waits for every earlier unsent or dead row of its run. The claim is a
-- short statement; the network happens outside any transaction, and a relay that dies simply lets the claim lapse.
-- Its own notes alone may be forgotten by a server that crashes: the row is then published again.
create function claim_outbox(p_limit integer, p_claim_ms integer, p_token uuid)
returns table (id uuid, tenant text, run_id uuid, wake integer)
language sql security definer set search_path = countersign, pg_temp
as $$
  select set_config('synchronous_commit', 'off', true);
  update outbox o set claim_token = p_token, claimed_until = clock_timestamp() + p_claim_ms * interval '1 millisecond'
  from (
    select c.id from outbox c
    where c.sent_at is null and c.dead_at is null and c.available_at <= clock_timestamp()
      and (c.claimed_until is null or c.claimed_until < clock_timestamp())
      and not exists (select 1 from outbox earlier where earlier.tenant = c.tenant and earlier.run_id = c.run_id
                      and earlier.position < c.position and earlier.sent_at is null)
    order by c.position limit p_limit for update skip locked) due
  where o.id = due.id
  returning o.id, o.tenant, o.run_id, o.wake
$$;

-- Relay: published. Zero rows for an id: the claim had lapsed and another relay has it; publishing twice is harmless.
create function mark_outbox_sent(p_ids uuid[], p_token uuid) returns integer
language sql security definer set search_path = countersign, pg_temp
as $$
  select set_config('synchronous_commit', 'off', true);
  with done as (
    update outbox set sent_at = clock_timestamp(), claimed_until = null
    where id = any (p_ids) and claim_token = p_token and sent_at is null returning 1)
  select count(*)::integer from done
$$;

-- Relay: not published. Only an error that names the row (p_counts) brings it nearer to dead.
create function mark_outbox_failed(p_id uuid, p_token uuid, p_counts boolean, p_budget integer, p_retry_ms integer, p_reason text)
returns void language sql security definer set search_path = countersign, pg_temp
as $$
  update outbox set claimed_until = null, failures = failures + p_counts::integer,
    available_at = clock_timestamp() + p_retry_ms * interval '1 millisecond',
    dead_at = case when p_counts and failures + 1 >= p_budget then clock_timestamp() end,
    dead_reason = case when p_counts and failures + 1 >= p_budget then p_reason end
  where id = p_id and claim_token = p_token and sent_at is null
$$;

-- Sweep: runs that something should look at. Ready or running and quiet for p_patience_ms; waiting and not looked at
-- for as long; any run with a lapsed approval at once.
create function runs_to_sweep(p_limit integer, p_patience_ms bigint)
returns table (tenant text, run_id uuid)
language sql security definer set search_path = countersign, pg_temp
as $$
  select tenant, run_id from (
    (select p.tenant, p.run_id, p.lapses_at as due from approvals p
      where p.lapses_at <= clock_timestamp() order by p.lapses_at limit p_limit)
    union
    (select r.tenant, r.id, r.looked_at from runs r
      where r.ended_at is null and r.status not in ('quarantined', 'dead_lettered')
        and r.looked_at <= clock_timestamp() - p_patience_ms * interval '1 millisecond'
        and (r.status <> 'running' or r.held_until < clock_timestamp())
      order by r.looked_at limit p_limit)) due
  group by tenant, run_id order by min(due) limit p_limit
$$;

-- Parked runs that a worker just announced could carry: it looks at them at once instead of a sweep later.
create function runs_to_unpark(p_limit integer, p_workflows text[])
returns table (tenant text, run_id uuid)
language sql security definer set search_path = countersign, pg_temp
as $$
  select r.tenant, r.id from runs r
  where r.ended_at is null and r.status = 'parked' and r.workflow || '@' || r.version = any (p_workflows)
  order by r.looked_at limit p_limit
$$;

-- Reconciler: leases due actions by moving reconcile_after, so that two reconcilers do not ask at once. Ids only.
create function claim_actions_to_reconcile(p_limit integer, p_lease_ms bigint, p_workflows text[])
returns table (tenant text, run_id uuid, action_id uuid)
language sql security definer set search_path = countersign, pg_temp
as $$
  update actions a set reconcile_after = clock_timestamp() + p_lease_ms * interval '1 millisecond'
  from (
    select c.tenant, c.id from actions c join runs r on r.tenant = c.tenant and r.id = c.run_id
    where c.state in ('dispatched', 'outcome_unknown') and c.reconcile_after <= clock_timestamp()
      and (c.recovery <> 'idempotent' or c.state = 'dispatched') and r.workflow || '@' || r.version = any (p_workflows)
    order by c.reconcile_after limit p_limit for update of c skip locked) due
  where a.tenant = due.tenant and a.id = due.id
  returning a.tenant, a.run_id, a.id
$$;

-- Idempotent actions whose deadline or back-off has passed: their run only needs its status computed again.
create function runs_to_repeat(p_limit integer)
returns table (tenant text, run_id uuid)
language sql security definer set search_path = countersign, pg_temp
as $$
  select c.tenant, c.run_id from actions c join runs r on r.tenant = c.tenant and r.id = c.run_id
  where c.state in ('dispatched', 'outcome_unknown') and c.recovery = 'idempotent' and c.reconcile_after <= clock_timestamp()
    and r.status = 'awaiting_reconciliation'
  -- Longest unseen first: those that wait for a person stay due, and must not keep the others from their turn.
  group by c.tenant, c.run_id, r.looked_at order by r.looked_at limit p_limit
$$;

-- Reconciler, inside the tenant: one action, past its deadline, with what a look-up needs.
-- A dispatched action whose worker is gone becomes outcome_unknown here. The look-up is counted before it is made: one
-- that ends its process would else be made for ever. No row: nothing to ask any more.
create function load_action_to_reconcile(p_tenant text, p_run uuid, p_action uuid)
returns table (workflow text, version text, tool text, recovery text, state text, attempt integer, effective_digest text,
  sealed_arguments bytea, absent_after timestamptz, reconcile_tries integer, asked_at timestamptz, reissue text)
language plpgsql set search_path = countersign, pg_temp
as $$
begin
  perform set_config('countersign.tenant', p_tenant, true);
  perform 1 from runs r where r.tenant = p_tenant and r.id = p_run for no key update;
  update actions a set state = 'outcome_unknown', reason = 'DEADLINE_PASSED',
    -- Nobody is asked about an idempotent one: it may be sent again at once.
    reconcile_after = case when a.recovery = 'idempotent' then clock_timestamp() else a.reconcile_after end
  where a.tenant = p_tenant and a.id = p_action and a.state = 'dispatched' and a.deadline_at <= clock_timestamp();
  if found then
    perform append_event(p_tenant, p_run, 'action_outcome_unknown', jsonb_build_object('action', p_action, 'source', 'reconciler', 'reason', 'DEADLINE_PASSED'));
    perform settle_run_status(p_tenant, p_run, false);
  end if;
  -- Nobody can be asked about these: they wait for a named person, and are not due again.
  update actions a set reconcile_after = null
  where a.tenant = p_tenant and a.id = p_action and a.state = 'outcome_unknown' and a.recovery in ('manual', 'transactional')
    and a.reconcile_after is not null;
  if found then
    perform append_event(p_tenant, p_run, 'action_waits_for_person', jsonb_build_object('action', p_action, 'reason', 'NOBODY_TO_ASK'));
  end if;
  update actions a set reconcile_tries = a.reconcile_tries + 1
  where a.tenant = p_tenant and a.id = p_action and a.state = 'outcome_unknown' and a.recovery = 'lookup';
  return query
    select r.workflow, r.version, a.tool, a.recovery::text, a.state::text, a.attempt, a.effective_digest, a.sealed_arguments,
      a.absent_after, a.reconcile_tries, clock_timestamp(), a.reissue::text
    from actions a join runs r on r.tenant = a.tenant and r.id = a.run_id
    where a.tenant = p_tenant and a.id = p_action and a.run_id = p_run and a.state = 'outcome_unknown'
      and a.recovery = 'lookup';
end
$$;

-- Announces a worker process and what it can carry.
create function announce_worker(p_id uuid, p_kind text, p_name text, p_workflows text[], p_state_schemas text[], p_tools text[], p_alive_ms integer)
returns void language plpgsql security definer set search_path = countersign, pg_temp
as $$
begin
  insert into workers (id, kind, name, workflows, state_schemas, tools, alive_until)
  values (p_id, p_kind, p_name, p_workflows, p_state_schemas, p_tools, clock_timestamp() + p_alive_ms * interval '1 millisecond')
  on conflict (id) do update set alive_until = excluded.alive_until, stopped_at = null;
  insert into workflows (name, version)
  select split_part(w, '@', 1), substr(w, strpos(w, '@') + 1) from unnest(p_workflows) as w on conflict do nothing;
  delete from workers where alive_until < clock_timestamp() - interval '1 day';
end
$$;

create function stop_worker(p_id uuid) returns void
language sql security definer set search_path = countersign, pg_temp
as $$ update workers set stopped_at = clock_timestamp() where id = p_id $$;

-- A function's new owner needs CREATE on the schema at that moment, and not a moment longer.
grant create on schema countersign to countersign_loops;
do $$
declare
  named text;
begin
  foreach named in array array['claim_outbox(integer, integer, uuid)', 'mark_outbox_sent(uuid[], uuid)',
      'mark_outbox_failed(uuid, uuid, boolean, integer, integer, text)', 'runs_to_sweep(integer, bigint)',
      'runs_to_unpark(integer, text[])', 'claim_actions_to_reconcile(integer, bigint, text[])', 'runs_to_repeat(integer)',
      'renew_holds(uuid, integer, integer, text[], uuid[], integer[])',
      'announce_worker(uuid, text, text, text[], text[], text[], integer)', 'stop_worker(uuid)'] loop
    execute 'alter function ' || named || ' owner to countersign_loops';
  end loop;
end
$$;
revoke create on schema countersign from countersign_loops;

-- Who may do what. Nobody may delete anything of a tenant but a session's own items, which a conversation may take back;
-- nobody but the owner may change a checkpoint, a receipt or an event.
grant usage on schema countersign to countersign_api, countersign_worker, countersign_relay, countersign_loops;
revoke all on all functions in schema countersign from public;

grant select (id, tenant, workflow, version, status, reason, holder, held_until, epoch, looked_at, manifest, state_schema, ended_at) on runs to countersign_loops;
grant update (held_until) on runs to countersign_loops;
grant select (tenant, id, run_id, state, recovery, reconcile_after) on actions to countersign_loops;
grant update (reconcile_after) on actions to countersign_loops;
grant select (tenant, id, run_id, state, lapses_at) on approvals to countersign_loops;
grant select, update on outbox to countersign_loops;
grant select, insert, update, delete on workers to countersign_loops;
grant select, insert on workflows to countersign_loops;
grant select on workers, workflows to countersign_api, countersign_worker;

grant execute on function claim_outbox(integer, integer, uuid), mark_outbox_sent(uuid[], uuid),
  mark_outbox_failed(uuid, uuid, boolean, integer, integer, text) to countersign_relay;

-- The api decides, cancels and explains. It never sees a checkpoint, a model response or a receipt.
grant select on tenants, sessions, runs, actions, approvals, votes, outbox, events, dead_letters to countersign_api;
grant select (tenant, run_id, number, state_schema, epoch, created_at) on checkpoints to countersign_api;
grant select (tenant, id, action_id, run_id, attempt, source, outcome, received_at) on receipts to countersign_api;
grant update on runs, approvals, actions, votes to countersign_api;
grant insert on votes, outbox, events to countersign_api;
grant execute on function as_tenant(text), append_event(text, uuid, text, jsonb), append_events(text, new_event[]),
  event_digest(bytea, text, uuid, integer, text, jsonb, timestamptz), can_be_carried(runs), may_repeat(actions),
  close_run(text, uuid, text), settle_run_status(text, uuid, boolean, bigint, text), close_action(text, uuid, uuid, text),
  start_run(text, uuid, text, text, text, text, bytea, text, text, boolean), cancel_run(text, uuid, text),
  decide_approval(text, uuid, text, text, text, uuid, bytea), revoke_approval(text, uuid, text),
  expire_approval(text, approvals), fingerprint_of(actions, approvals) to countersign_api;

grant select on all tables in schema countersign to countersign_worker;
grant insert on checkpoints, model_calls, tool_results, session_items, actions, receipts, approvals, outbox, events, dead_letters to countersign_worker;
grant update on runs, actions, approvals, model_calls, sessions to countersign_worker;
grant delete on session_items to countersign_worker;
grant execute on all functions in schema countersign to countersign_worker;
revoke execute on function claim_outbox(integer, integer, uuid), mark_outbox_sent(uuid[], uuid),
  mark_outbox_failed(uuid, uuid, boolean, integer, integer, text), decide_approval(text, uuid, text, text, text, uuid, bytea),
  revoke_approval(text, uuid, text) from countersign_worker;
grant select on migrations to countersign_api, countersign_worker, countersign_relay;
