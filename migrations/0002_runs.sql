-- Countersign, migration 2: runs. Events, the computed status, start, claim, hold, release, finish.
--
-- Each protocol step is one function, so that it is one round trip and one transaction: it names the tenant,
-- locks the run row first (lock order: run, approvals by id, actions by id, outbox), and only then compares
-- epochs, states and times, by clock_timestamp(). A fence is that locked row.
-- Claim, intend, settle and finish take calls for several runs of a tenant at once, for most of what a statement costs it costs
-- once however many rows it touches: they lock all the runs, read once, decide call by call, and write what was decided
-- at the end. Each run is in p_calls at most once. What is rare is done where it is decided, by the functions for one run.
-- They name the keys of runs and actions twice, as a join and as an array: a planner that believes the table is small
-- would read it all for the join alone.
-- The run's lock guards its approvals and actions too: whoever changes one holds it (the loops lease an action by its
-- reconcile_after alone), so that below it they are read without a lock of their own.
-- Functions that callers name set their search_path; those that only other functions call inherit it.

-- Names the tenant for the rest of the transaction.
create function as_tenant(p_tenant text) returns void
language sql set search_path = countersign, pg_temp
as $$ select set_config('countersign.tenant', p_tenant, true) $$;

create type new_event as (run uuid, kind text, data jsonb);

-- Appends one event each to the chains of several runs. The caller holds the runs' locks, which makes n gapless and each
-- chain one line.
create function append_events(p_tenant text, p_events new_event[]) returns void
language plpgsql
as $$
declare
  at_time timestamptz := clock_timestamp();
begin
  insert into events (tenant, run_id, n, kind, data, at, previous, digest)
  select p_tenant, e.run, coalesce(head.n, 0) + 1, e.kind, e.data, at_time, coalesce(head.digest, '\x'),
    event_digest(coalesce(head.digest, '\x'), p_tenant, e.run, coalesce(head.n, 0) + 1, e.kind, e.data, at_time)
  from unnest(p_events) as e
  left join lateral (select h.n, h.digest from events h where h.tenant = p_tenant and h.run_id = e.run order by h.n desc limit 1) head on true;
  perform notify_of_event(p_tenant, e.run, e.kind, e.data) from unnest(p_events) as e
  where e.kind in ('contradiction', 'action_waits_for_person', 'run_dead_lettered', 'security_alert', 'approval_requested');
end
$$;

create function append_event(p_tenant text, p_run uuid, p_kind text, p_data jsonb) returns void
language sql
as $$ select append_events(p_tenant, array[row(p_run, p_kind, p_data)::new_event]) $$;

-- What an event's digest covers; an auditor recomputes it.
create function event_digest(p_previous bytea, p_tenant text, p_run uuid, p_n integer, p_kind text, p_data jsonb, p_at timestamptz)
returns bytea language sql stable
as $$
  select sha256(p_previous || convert_to(
    jsonb_build_array(p_tenant, p_run, p_n, p_kind, p_data, (extract(epoch from p_at) * 1000000)::bigint)::text, 'UTF8'))
$$;

-- Can a live resume worker carry this run from its current checkpoint?
create function can_be_carried(r runs) returns boolean
language sql stable
as $$
  select exists (
    select 1 from workers w
    where w.kind = 'resume' and w.stopped_at is null and w.alive_until > clock_timestamp()
      and r.workflow || '@' || r.version = any (w.workflows)
      and r.state_schema = any (w.state_schemas)
      and r.manifest <@ w.tools)
$$;

-- May an attempt whose outcome is open be sent again under the same key? Only an idempotent tool's, inside the
-- provider's key lifetime, the approval's execution window and the attempt budget.
create function may_repeat(a actions) returns boolean
language sql stable
as $$
  select a.recovery = 'idempotent'
    and a.attempt < a.attempt_budget
    and coalesce(clock_timestamp() >= a.reconcile_after, false)
    and (a.key_lifetime_ms is null
      or clock_timestamp() + (a.send_within_ms + a.call_timeout_ms) * interval '1 millisecond'
         < a.first_dispatched_at + a.key_lifetime_ms * interval '1 millisecond')
    and (not a.gated or exists (
      select 1 from approvals p
      where p.tenant = a.tenant and p.action_id = a.id and p.state = 'consumed' and clock_timestamp() < p.execute_before))
$$;

-- Closes what must not happen any more once a run has ended. Evidence about open attempts still lands later.
create function close_run(p_tenant text, p_run uuid, p_reason text) returns void
language plpgsql
as $$
begin
  update approvals set state = 'invalidated'
  where tenant = p_tenant and run_id = p_run and state in ('pending', 'approved');
  update actions set state = 'not_executed', reason = p_reason, settled_at = clock_timestamp()
  where tenant = p_tenant and run_id = p_run and state = 'prepared';
end
$$;

-- THE computed status. The caller holds the run's lock. p_release: the caller owned the running run and lets go.
-- Never leaves quarantined or dead_lettered (but to be cancelled) or an ended status; never touches a run that a live worker holds.
-- Returns the status after.
create function settle_run_status(p_tenant text, p_run uuid, p_release boolean, p_delay_ms bigint default 0, p_reason text default null)
returns text language plpgsql
as $$
declare
  r runs;
  wanted text;
  why text := p_reason;
  open boolean;
  stuck boolean;
  held boolean;
begin
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  if r.status in ('completed', 'failed', 'cancelled', 'superseded')
     or (r.status in ('quarantined', 'dead_lettered') and r.cancel_requested_at is null)
     or (r.status = 'running' and not p_release) then
    return r.status;
  end if;

  -- Found by the run and told apart here: a condition on the state would let the planner read an index of everybody's.
  select coalesce(bool_or(a.state in ('dispatched', 'outcome_unknown')), false),
    coalesce(bool_or(a.state in ('dispatched', 'outcome_unknown') and not may_repeat(a)), false),
    coalesce(bool_or(a.state = 'prepared' and a.held_by is not null and exists (select 1 from actions first
      where first.tenant = a.tenant and first.id = a.held_by and first.state in ('dispatched', 'outcome_unknown'))), false)
    into open, stuck, held
  from actions a where a.tenant = p_tenant and a.run_id = p_run;

  if r.cancel_requested_at is not null and not open then
    wanted := 'cancelled';
  elsif r.status in ('quarantined', 'dead_lettered') then
    return r.status;
  elsif stuck or (open and r.cancel_requested_at is not null) then
    wanted := 'awaiting_reconciliation';
    why := coalesce(p_reason, 'OUTCOME_UNKNOWN');
  elsif held then
    wanted := 'awaiting_reconciliation';
    why := 'SAME_OPERATION_UNRESOLVED';
  elsif (select bool_or(p.state = 'pending') from approvals p where p.tenant = p_tenant and p.run_id = p_run) then
    wanted := 'awaiting_approval';
  elsif not can_be_carried(r) then
    wanted := 'parked';
    why := 'NO_CAPABLE_WORKER';
  else
    wanted := 'ready';
  end if;

  if wanted = r.status then
    update runs set looked_at = clock_timestamp() where tenant = p_tenant and id = p_run;
    return r.status;
  end if;

  if wanted = 'cancelled' then
    perform close_run(p_tenant, p_run, 'cancelled');
  end if;
  update runs set
    status = wanted, reason = why, holder = null, held_until = null,
    session_slot = case when wanted = 'cancelled' then null else session_id end,
    wake = wake + (wanted = 'ready')::integer,
    ended_at = case when wanted = 'cancelled' then clock_timestamp() end,
    changed_at = clock_timestamp(), looked_at = clock_timestamp()
  where tenant = p_tenant and id = p_run;
  perform append_event(p_tenant, p_run, 'run_' || wanted,
    jsonb_strip_nulls(jsonb_build_object('from', r.status, 'reason', why)));
  if wanted = 'ready' then
    insert into outbox (tenant, run_id, wake, available_at)
    values (p_tenant, p_run, r.wake + 1, clock_timestamp() + p_delay_ms * interval '1 millisecond');
  end if;
  return wanted;
end
$$;

-- Makes sure that a session exists and that no run is active on it. Of two starts at once one loses at the unique
-- index; the session's row is not locked here, for a pausing run locks itself first and its session second.
-- A run of the caller's own key is never in the way: it is the answer. Returns the active run that is, or null.
create function free_session(p_tenant text, p_session text, p_supersede boolean, p_client_key text) returns uuid
language plpgsql
as $$
declare
  active runs;
begin
  insert into sessions (tenant, id) values (p_tenant, p_session) on conflict do nothing;
  select * into active from runs r where r.tenant = p_tenant and r.session_slot = p_session
    and (p_client_key is null or r.client_key is distinct from p_client_key) for no key update;
  if not found then
    return null;
  end if;
  if not p_supersede or active.status not in ('awaiting_approval', 'ready', 'parked') or exists (
       select 1 from actions a where a.tenant = p_tenant and a.run_id = active.id and a.state in ('dispatched', 'outcome_unknown')) then
    return active.id;
  end if;
  perform supersede_run(p_tenant, active.id);
  return null;
end
$$;

-- Ends a run that a newer one replaces. The caller holds the lock and knows that nothing is in flight.
create function supersede_run(p_tenant text, p_run uuid) returns void
language plpgsql
as $$
begin
  update approvals set state = 'superseded' where tenant = p_tenant and run_id = p_run and state in ('pending', 'approved');
  perform close_run(p_tenant, p_run, 'superseded');
  update runs set status = 'superseded', session_slot = null, reason = null, holder = null, held_until = null,
    ended_at = clock_timestamp(), changed_at = clock_timestamp()
  where tenant = p_tenant and id = p_run;
  perform append_event(p_tenant, p_run, 'run_superseded', '{}');
end
$$;

-- Start. Definer, so that a caller's own transaction needs EXECUTE on this alone; the policies still hold.
-- outcome: started | existing (same key, same input) | conflict (same key, other input) | unknown_workflow
--   | session_busy (run_id: the session's active run; with p_supersede it gives way if nothing of it is in flight).
create function start_run(
  p_tenant text, p_run uuid, p_workflow text, p_version text, p_client_key text, p_input_digest text,
  p_sealed_input bytea, p_requested_by text, p_session text, p_supersede boolean,
  out outcome text, out run_id uuid, out known text[])
language plpgsql security definer set search_path = countersign, pg_temp
as $$
declare
  existing runs;
  chosen text := p_version;
  fresh boolean;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  if chosen is null then
    select w.version into chosen from workflows w where w.name = p_workflow order by w.announced_at desc limit 1;
  end if;
  if p_client_key is not null then
    select * into existing from runs r where r.tenant = p_tenant and r.client_key = p_client_key;
  end if;
  if existing.id is null and not exists (select 1 from workflows w where w.name = p_workflow and w.version = chosen) then
    outcome := 'unknown_workflow';
    select coalesce(array_agg(w.name || '@' || w.version order by w.name, w.version), '{}') into known from workflows w;
    return;
  end if;
  if existing.id is null then
    -- Of two transactions that start a tenant's first run at once one records the tenant, and neither waits.
    if not exists (select 1 from tenants t where t.id = p_tenant)
       and pg_try_advisory_xact_lock(hashtextextended('countersign tenant ' || p_tenant, 0)) then
      insert into tenants (id) values (p_tenant) on conflict do nothing;
    end if;
    if p_session is not null then
      run_id := free_session(p_tenant, p_session, p_supersede, p_client_key);
      if run_id is not null then
        outcome := 'session_busy';
        return;
      end if;
    end if;
    begin
      insert into runs (tenant, id, workflow, version, status, state_schema, client_key, input_digest, requested_by,
        session_id, session_slot)
      values (p_tenant, p_run, p_workflow, chosen, 'parked', 'input/1', p_client_key, p_input_digest, p_requested_by, p_session, p_session)
      on conflict (tenant, client_key) do nothing;
      fresh := found;
    exception when unique_violation then
      outcome := 'session_busy';
      select r.id into run_id from runs r where r.tenant = p_tenant and r.session_slot = p_session;
      return;
    end;
    if fresh then
      insert into checkpoints (tenant, run_id, number, sealed, state_schema, epoch)
      values (p_tenant, p_run, 0, p_sealed_input, 'input/1', 0);
      perform append_event(p_tenant, p_run, 'run_started',
        jsonb_build_object('workflow', p_workflow, 'version', chosen, 'by', p_requested_by));
      perform settle_run_status(p_tenant, p_run, false);
      outcome := 'started';
      run_id := p_run;
      return;
    end if;
    select * into existing from runs r where r.tenant = p_tenant and r.client_key = p_client_key;
  end if;
  run_id := existing.id;
  outcome := case
    when existing.input_digest = p_input_digest and existing.workflow = p_workflow
     and (p_version is null or existing.version = p_version) then 'existing' else 'conflict' end;
end
$$;

create type claim_call as (n integer, run uuid, wake integer, worker uuid, ttl_ms integer, max_attempts integer,
  take_over boolean, workflows text[], state_schemas text[], tools text[]);

-- Claim. outcome: claimed | stale (older wake, or nothing to do: acknowledge) | held (wait_ms: delay the job; 0: the hold has run out)
--   | cannot_carry (left untouched, no attempt spent) | dead_lettered (budget spent by this very claim) | unknown.
-- The loaded run travels with the claim: one round trip.
create function claim_runs(p_tenant text, p_calls json)
returns table (n integer, outcome text, wait_ms integer, run json, sealed bytea, actions json, calls json, tool_results json,
  session json)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  tenant_named text := set_config('countersign.tenant', p_tenant, true);
  asked claim_call[] := array(select c from json_populate_recordset(null::claim_call, p_calls) as c);
  run_ids uuid[] := array(select a.run from unnest(asked) a);
  c record;
  r runs;
  expired boolean;
  claimed uuid[] := '{}';
  session_versions integer[] := '{}';
  told new_event[] := '{}';
begin
  perform 1 from runs t where t.tenant = p_tenant and t.id = any (run_ids) order by t.id for no key update;
  for c in
    select a.*, t as locked, s.version as session_version
    from unnest(asked) a
    left join runs t on t.tenant = p_tenant and t.id = a.run and t.id = any (run_ids)
    left join sessions s on s.tenant = p_tenant and s.id = t.session_id and (t.segment = 0 or s.version = t.session_version)
  loop
    n := c.n;
    r := c.locked;
    wait_ms := null;
    expired := r.status = 'running' and r.held_until < clock_timestamp();
    if r.id is null then
      outcome := 'unknown';
    elsif c.wake < r.wake or r.status not in ('ready', 'running') then
      outcome := 'stale';
    elsif r.status = 'running' and (not expired or not c.take_over) then
      outcome := 'held';
      wait_ms := greatest(0, ceil(extract(epoch from r.held_until - clock_timestamp()) * 1000)::integer);
    elsif not (r.workflow || '@' || r.version = any (c.workflows) and r.state_schema = any (c.state_schemas) and r.manifest <@ c.tools) then
      outcome := 'cannot_carry';
      if not can_be_carried(r) then
        perform settle_parked(p_tenant, r.id, 'NO_CAPABLE_WORKER');
      end if;
    elsif r.attempts_in_round >= c.max_attempts then
      outcome := 'dead_lettered';
      perform dead_letter_run(p_tenant, r.id, case when expired then 'stalled' else 'transient_exhausted' end,
        coalesce(r.reason, 'ATTEMPTS_SPENT'));
    elsif r.session_id is not null and c.session_version is null then
      outcome := 'dead_lettered';
      perform dead_letter_run(p_tenant, r.id, 'permanent', 'SESSION_MOVED_ON');
    else
      claimed := claimed || r.id;
      session_versions := session_versions || c.session_version;
      told := told || row(r.id, 'run_claimed', jsonb_build_object('epoch', r.epoch + 1, 'worker', c.worker,
        'attempt', r.attempts_in_round + 1, 'segment', r.segment, 'taken_over', expired))::new_event;
      continue;
    end if;
    return next;
  end loop;

  if cardinality(claimed) > 0 then
    update runs t set status = 'running', epoch = t.epoch + 1, holder = a.worker, attempts_in_round = t.attempts_in_round + 1,
      claims_in_segment = t.claims_in_segment + 1, session_version = v.session_version,
      held_until = clock_timestamp() + a.ttl_ms * interval '1 millisecond', changed_at = clock_timestamp()
    from unnest(claimed, session_versions) as v (run, session_version)
    join unnest(asked) a on a.run = v.run
    where t.tenant = p_tenant and t.id = v.run and t.id = any (claimed);
    perform append_events(p_tenant, told);
    return query select a.n, 'claimed', null::integer, l.run, l.sealed, l.actions, l.calls, l.tool_results, l.session
      from load_segments(p_tenant, claimed) l join unnest(asked) a on a.run = l.run_id;
  end if;
end
$$;

-- A run for whoever looks at it without claiming it: the check before a deploy.
create function load_run(p_tenant text, p_run uuid,
  out run json, out sealed bytea, out actions json, out calls json, out tool_results json, out session json)
language plpgsql set search_path = countersign, pg_temp
as $$
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select l.run, l.sealed, l.actions, l.calls, l.tool_results, l.session
    into run, sealed, actions, calls, tool_results, session
  from load_segments(p_tenant, array[p_run]) l;
end
$$;

-- Everything a segment needs of its run. Reads only.
create function load_segments(p_tenant text, p_runs uuid[])
returns table (run_id uuid, run json, sealed bytea, actions json, calls json, tool_results json, session json)
language plpgsql
as $$
begin
  return query
  select r.id,
    json_build_object('workflow', r.workflow, 'version', r.version, 'segment', r.segment, 'epoch', r.epoch,
      'attempt', r.attempts_in_round, 'usage', r.usage),
    c.sealed,
    (select json_agg(json_build_object(
        'id', a.id, 'segment', a.segment, 'path', a.path, 'call_id', a.call_id, 'tool', a.tool, 'tool_version', a.tool_version,
        'gated', a.gated, 'recovery', a.recovery, 'state', a.state, 'reason', a.reason, 'attempt', a.attempt,
        'proposed_digest', a.proposed_digest, 'effective_digest', a.effective_digest,
        'sealed_arguments', encode(a.sealed_arguments, 'base64'),
        'approval_id', p.id, 'approval_state', p.state, 'checkpoint', p.checkpoint,
        'sealed_words', encode(p.sealed_words, 'base64')) order by a.id)
      from actions a
      left join lateral (select q.id, q.state, q.checkpoint, q.sealed_words from approvals q
        where q.tenant = p_tenant and q.action_id = a.id order by q.created_at desc limit 1) p on true
      where a.tenant = p_tenant and a.run_id = r.id and a.segment >= r.segment - 1),
    -- A segment's first claim has nothing stored yet.
    case when r.claims_in_segment > 1 then (
      select json_agg(json_build_object('path', m.path, 'n', m.n, 'request_digest', m.request_digest, 'sealed', encode(m.sealed, 'base64'))
        order by m.path, m.n)
      from model_calls m where m.tenant = p_tenant and m.run_id = r.id and m.segment = r.segment and m.take = 0) end,
    case when r.claims_in_segment > 1 then (
      select json_object_agg(t.call_id, encode(t.sealed, 'base64'))
      from tool_results t where t.tenant = p_tenant and t.run_id = r.id and t.segment = r.segment) end,
    case when r.session_id is not null then load_session(p_tenant, r.id, r.session_id, r.segment = 0) end
  from runs r
  left join checkpoints c on c.tenant = p_tenant and c.run_id = r.id and c.number = r.segment and c.run_id = any (p_runs)
  where r.tenant = p_tenant and r.id = any (p_runs);
end
$$;

-- A session as its run's claim loads it. At the run's first claim also the calls that earlier runs left unanswered
-- there (given up, failed, cancelled), with what the ledger knows of each: the history must not hold an orphan.
create function load_session(p_tenant text, p_run uuid, p_session text, p_first boolean) returns json
language plpgsql
as $$
declare
  loaded json;
begin
  select json_build_object('id', s.id, 'version', s.version, 'operations', s.operations,
    'items', coalesce((select json_agg(encode(i.sealed, 'base64') order by i.position) from session_items i
      where i.tenant = p_tenant and i.session_id = p_session), '[]'),
    'left_open', case when p_first then coalesce((select json_object_agg(a.call_id, a.state) from runs r
      join actions a on a.tenant = r.tenant and a.run_id = r.id
      where r.tenant = p_tenant and r.session_id = p_session and r.id <> p_run), '{}') end)
    into loaded
  from sessions s where s.tenant = p_tenant and s.id = p_session;
  return loaded;
end
$$;

-- Stores what a segment changed of its session: the first p_change.base items stay, the rest is as given. The caller
-- holds the run's lock; the session's version is compared on its own locked row.
create function store_session(p_tenant text, r runs, p_change jsonb) returns void
language plpgsql
as $$
begin
  update sessions s set version = s.version + 1, operations = p_change -> 'operations'
  where s.tenant = p_tenant and s.id = r.session_id and s.version = r.session_version;
  if not found then
    raise exception 'the session has moved on' using errcode = 'CS002';
  end if;
  delete from session_items i where i.tenant = p_tenant and i.session_id = r.session_id and i.position >= (p_change ->> 'base')::integer;
  insert into session_items (tenant, session_id, position, sealed, run_id)
  select p_tenant, r.session_id, (p_change ->> 'base')::integer + n - 1, decode(item, 'base64'), r.id
  from jsonb_array_elements_text(p_change -> 'items') with ordinality as given (item, n);
  update runs t set session_version = t.session_version + 1 where t.tenant = p_tenant and t.id = r.id;
end
$$;

-- Parks a run that nobody alive can carry, or that its worker found it could not. The caller holds the lock.
create function settle_parked(p_tenant text, p_run uuid, p_reason text) returns void
language plpgsql
as $$
begin
  update runs set status = 'parked', reason = p_reason, holder = null, held_until = null,
    changed_at = clock_timestamp(), looked_at = clock_timestamp()
  where tenant = p_tenant and id = p_run;
  perform append_event(p_tenant, p_run, 'run_parked', jsonb_build_object('reason', p_reason));
end
$$;

-- Gives a run's work up. Only a named operator takes it out again. The caller holds the lock.
create function dead_letter_run(p_tenant text, p_run uuid, p_class text, p_code text) returns void
language plpgsql
as $$
declare
  r runs;
begin
  update runs set status = 'dead_lettered', session_slot = null, looked_at = 'infinity', reason = p_code, holder = null, held_until = null, changed_at = clock_timestamp()
  where tenant = p_tenant and id = p_run returning * into r;
  insert into dead_letters (tenant, run_id, round, class, code) values (p_tenant, p_run, r.round, p_class, p_code)
  on conflict (tenant, run_id, round) do nothing;
  perform append_event(p_tenant, p_run, 'run_dead_lettered', jsonb_build_object('class', p_class, 'code', p_code, 'round', r.round));
  if r.cancel_requested_at is not null then
    -- Asked to stop and given up: cancelled as soon as nothing is in flight.
    perform settle_run_status(p_tenant, p_run, false);
  end if;
end
$$;

-- One batched heartbeat: renews every hold of a worker that is still its own, across tenants, and keeps the worker
-- alive. A run whose row is busy (a transactional effect, a decision) is passed over: it must not let the others run out.
-- Returns the runs still held, and whether each was renewed; what is missing has been lost.
create function renew_holds(p_worker uuid, p_ttl_ms integer, p_alive_ms integer, p_tenants text[], p_runs uuid[], p_epochs integer[])
returns table (tenant text, run_id uuid, epoch integer, renewed boolean)
language plpgsql security definer set search_path = countersign, pg_temp
as $$
begin
  update workers w set alive_until = clock_timestamp() + p_alive_ms * interval '1 millisecond' where w.id = p_worker;
  return query
    with mine as materialized (
      select r.tenant, r.id from unnest(p_tenants, p_runs, p_epochs) as held (tenant, id, epoch)
      join runs r on r.tenant = held.tenant and r.id = held.id
      where r.epoch = held.epoch and r.status = 'running' and r.holder = p_worker
      order by r.tenant, r.id for no key update of r skip locked),
    done as (
      update runs r set held_until = clock_timestamp() + p_ttl_ms * interval '1 millisecond'
      from mine where r.tenant = mine.tenant and r.id = mine.id
        and r.status = 'running' and r.holder = p_worker
      returning r.tenant, r.id)
    select r.tenant, r.id, r.epoch, exists (select 1 from done d where d.tenant = r.tenant and d.id = r.id)
    from unnest(p_tenants, p_runs, p_epochs) as held (tenant, id, epoch)
    join runs r on r.tenant = held.tenant and r.id = held.id
    where r.epoch = held.epoch and r.status = 'running' and r.holder = p_worker;
end
$$;

-- Release: the worker lets a running run go without finishing it. p_class null: the status is computed, after
-- p_delay_ms if it is ready (a suspend, a drain: the attempt is not spent when p_refund). Otherwise the attempt
-- counts, and the run is dead-lettered with that class once the budget is spent. Returns null: fenced.
create function release_run(p_tenant text, p_run uuid, p_epoch integer, p_reason text, p_delay_ms bigint, p_class text,
  p_max_attempts integer, p_refund boolean)
returns text language plpgsql set search_path = countersign, pg_temp
as $$
declare
  r runs;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  if r.epoch is distinct from p_epoch or r.status <> 'running' then
    return null;
  end if;
  if p_refund then
    update runs set attempts_in_round = greatest(attempts_in_round - 1, 0) where tenant = p_tenant and id = p_run;
  elsif p_class is not null and (r.attempts_in_round >= p_max_attempts or p_class in ('permanent', 'diverged', 'incompatible')) then
    perform dead_letter_run(p_tenant, p_run, p_class, p_reason);
    return 'dead_lettered';
  end if;
  return settle_run_status(p_tenant, p_run, true, p_delay_ms, p_reason);
end
$$;

-- The worker found that it cannot carry this run after all (key missing, tool not guarded): no attempt spent.
create function park_run(p_tenant text, p_run uuid, p_epoch integer, p_reason text)
returns text language plpgsql set search_path = countersign, pg_temp
as $$
declare
  r runs;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  if r.epoch is distinct from p_epoch or r.status <> 'running' then
    return null;
  end if;
  update runs set attempts_in_round = greatest(attempts_in_round - 1, 0) where tenant = p_tenant and id = p_run;
  perform settle_parked(p_tenant, p_run, p_reason);
  perform count_park(p_tenant, p_run);
  return 'parked';
end
$$;

-- Damaged: hands off until a named operator looks. Open decisions on it are void.
create function quarantine_run(p_tenant text, p_run uuid, p_epoch integer, p_reason text)
returns text language plpgsql set search_path = countersign, pg_temp
as $$
declare
  r runs;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  if r.epoch is distinct from p_epoch or r.status <> 'running' then
    return null;
  end if;
  perform settle_quarantined(p_tenant, p_run, p_reason, null);
  return 'quarantined';
end
$$;

create function settle_quarantined(p_tenant text, p_run uuid, p_reason text, p_action uuid) returns void
language plpgsql
as $$
begin
  update approvals set state = 'invalidated' where tenant = p_tenant and run_id = p_run and state in ('pending', 'approved');
  update runs set status = 'quarantined', looked_at = 'infinity', reason = p_reason, holder = null, held_until = null, changed_at = clock_timestamp()
  where tenant = p_tenant and id = p_run;
  perform append_event(p_tenant, p_run, 'security_alert', jsonb_strip_nulls(jsonb_build_object('code', p_reason, 'action', p_action)));
  perform append_event(p_tenant, p_run, 'run_quarantined', jsonb_build_object('reason', p_reason));
end
$$;

-- Stores model responses of several runs, with the epochs of their owners. The caller holds the locks and has compared them.
create function store_model_calls(p_tenant text, p_runs uuid[], p_owners integer[], p_calls jsonb[]) returns void
language plpgsql
as $$
begin
  insert into model_calls (tenant, run_id, segment, path, n, request_digest, sealed, usage, epoch)
  select p_tenant, r.id, r.segment, c.path, c.n, c.request_digest, decode(c.sealed, 'base64'), c.usage, k.epoch
  from unnest(p_runs, p_owners, p_calls) as k (run, epoch, calls)
  join runs r on r.tenant = p_tenant and r.id = k.run and r.id = any (p_runs)
  cross join jsonb_to_recordset(k.calls) as c (path text, n integer, request_digest text, sealed text, usage jsonb);
end
$$;

create type finish_call as (n integer, run uuid, epoch integer, status text, sealed_output bytea, reason text, usage jsonb,
  calls jsonb, session jsonb);

-- Finish. Final output (completed) or a final failure (failed), with the last responses that asked for nothing.
-- finished false: fenced.
create function finish_runs(p_tenant text, p_calls json) returns table (n integer, finished boolean)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  tenant_named text := set_config('countersign.tenant', p_tenant, true);
  asked finish_call[] := array(select c from json_populate_recordset(null::finish_call, p_calls) as c);
  run_ids uuid[] := array(select a.run from unnest(asked) a);
  c record;
  r runs;
  ended uuid[] := '{}';
  told new_event[] := '{}';
begin
  perform 1 from runs t where t.tenant = p_tenant and t.id = any (run_ids) order by t.id for no key update;
  for c in
    select a.*, t as locked, x.open, x.undone
    from unnest(asked) a
    left join runs t on t.tenant = p_tenant and t.id = a.run and t.id = any (run_ids)
    cross join lateral (
      select coalesce(bool_or(x.state in ('dispatched', 'outcome_unknown')), false) as open,
        coalesce(bool_or(x.state = 'prepared'), false) as undone
      from actions x where x.tenant = p_tenant and x.run_id = a.run) x
  loop
    n := c.n;
    r := c.locked;
    finished := false;
    if r.epoch is distinct from c.epoch or r.status <> 'running' then
      return next;
      continue;
    end if;
    -- An end is an end only when every outcome is known: until then the run waits, and reaches the same end again.
    if c.open then
      perform settle_run_status(p_tenant, r.id, true);
      return next;
      continue;
    end if;
    if c.session is not null then
      perform store_session(p_tenant, r, c.session);
    end if;
    -- An approval is open only while its action is prepared.
    if c.undone then
      perform close_run(p_tenant, r.id, 'run_ended');
    end if;
    ended := ended || r.id;
    told := told || row(r.id, 'run_' || c.status, jsonb_strip_nulls(jsonb_build_object('epoch', c.epoch, 'reason', c.reason)))::new_event;
    finished := true;
    return next;
  end loop;

  if cardinality(ended) > 0 then
    perform store_model_calls(p_tenant, array_agg(a.run), array_agg(a.epoch), array_agg(a.calls))
      from unnest(asked) a where a.run = any (ended);
    update runs t set status = a.status, session_slot = null, reason = a.reason, sealed_output = a.sealed_output, usage = a.usage,
      holder = null, held_until = null, attempts_in_round = 0, ended_at = clock_timestamp(), changed_at = clock_timestamp()
    from unnest(asked) a
    where t.tenant = p_tenant and t.id = a.run and t.id = any (ended);
    perform append_events(p_tenant, told);
  end if;
end
$$;

-- Cancel: a flag that intend obeys; final when the last open attempt is settled. Returns what is in flight.
-- outcome: cancelled | cancelling | ended (already) | not_found.
create function cancel_run(p_tenant text, p_run uuid, p_subject text, out outcome text, out status text, out in_flight uuid[])
language plpgsql set search_path = countersign, pg_temp
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
  status := r.status;
  if r.status in ('completed', 'failed', 'cancelled', 'superseded') then
    outcome := 'ended';
    return;
  end if;
  if r.cancel_requested_at is null then
    update runs t set cancel_requested_at = clock_timestamp() where t.tenant = p_tenant and t.id = p_run;
    perform append_event(p_tenant, p_run, 'run_cancel_requested', jsonb_build_object('by', p_subject));
  end if;
  status := settle_run_status(p_tenant, p_run, false);
  outcome := case when status = 'cancelled' then 'cancelled' else 'cancelling' end;
  select coalesce(array_agg(a.id order by a.id), '{}') into in_flight from actions a
  where a.tenant = p_tenant and a.run_id = p_run and a.state in ('dispatched', 'outcome_unknown');
end
$$;
