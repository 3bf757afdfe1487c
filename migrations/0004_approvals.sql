-- Countersign, migration 4: approvals. Pause, decide, revoke, expire.

-- One pending approval per action that a person must decide, on a checkpoint that is stored in this transaction.
create function request_approvals(p_tenant text, p_run uuid, p_number integer, p_approvals jsonb) returns void
language plpgsql
as $$
declare
  made approvals;
  wanted record;
begin
  for wanted in
    select * from jsonb_to_recordset(p_approvals) as w (id uuid, action_id uuid, policy text, quorum integer,
      sealed_review text, expires_in_ms bigint, execute_within_ms bigint) order by w.id
  loop
    insert into approvals (tenant, id, run_id, checkpoint, action_id, state, policy, quorum, fingerprint, sealed_review,
      decide_before, execute_within_ms)
    values (p_tenant, wanted.id, p_run, p_number, wanted.action_id, 'pending', wanted.policy, wanted.quorum, '',
      decode(wanted.sealed_review, 'base64'), clock_timestamp() + wanted.expires_in_ms * interval '1 millisecond',
      wanted.execute_within_ms)
    returning * into made;
    update approvals p set fingerprint = fingerprint_of(a, made) from actions a
    where p.tenant = p_tenant and p.id = made.id and a.tenant = p_tenant and a.id = made.action_id
      and a.run_id = p_run and a.state = 'prepared' and a.gated;
    if not found then
      raise exception 'an approval needs a prepared gated action of its run' using errcode = 'CS001';
    end if;
    perform append_event(p_tenant, p_run, 'approval_requested',
      jsonb_build_object('approval', made.id, 'action', made.action_id, 'policy', made.policy));
  end loop;
end
$$;

-- Pause: checkpoint, approvals, usage and status in one fenced transaction. An approval is visible if and only if
-- its checkpoint is stored. Returns the status after; null: fenced.
create function pause_run(p_tenant text, p_run uuid, p_epoch integer, p_number integer, p_sealed bytea, p_state_schema text,
  p_manifest text[], p_approvals jsonb, p_usage jsonb, p_session jsonb)
returns text language plpgsql
as $$
declare
  r runs;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  if r.epoch is distinct from p_epoch or r.status <> 'running' or r.segment <> p_number - 1 then
    return null;
  end if;
  insert into checkpoints (tenant, run_id, number, sealed, state_schema, epoch)
  values (p_tenant, p_run, p_number, p_sealed, p_state_schema, p_epoch);
  perform append_event(p_tenant, p_run, 'checkpoint_stored', jsonb_build_object('number', p_number, 'epoch', p_epoch));
  perform request_approvals(p_tenant, p_run, p_number, p_approvals);
  if p_session is not null then
    perform store_session(p_tenant, r, p_session);
  end if;
  update runs set segment = p_number, state_schema = p_state_schema, manifest = p_manifest, usage = p_usage, attempts_in_round = 0, claims_in_segment = 0
  where tenant = p_tenant and id = p_run;
  return settle_run_status(p_tenant, p_run, true);
end
$$;

create type pause_call as (n integer, run uuid, epoch integer, number integer, sealed bytea, state_schema text,
  manifest text[], approvals jsonb, usage jsonb, session jsonb);

-- The same for several runs, one after the other: they share a commit.
create function pause_runs(p_tenant text, p_calls json) returns table (n integer, status text)
language sql set search_path = countersign, pg_temp
as $$
  select c.n, pause_run(p_tenant, c.run, c.epoch, c.number, c.sealed, c.state_schema, c.manifest, c.approvals, c.usage, c.session)
  from (select * from json_populate_recordset(null::pause_call, p_calls) order by run) as c
$$;

-- Ask again: an approved action may not run on its decision, because an identical one has succeeded since it was taken.
-- That decision is superseded, p_approvals holds the new request, and the run waits for it. Returns the status after;
-- null: fenced.
create function request_again(p_tenant text, p_run uuid, p_epoch integer, p_action uuid, p_approvals jsonb)
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
  update approvals set state = 'superseded' where tenant = p_tenant and action_id = p_action and state = 'approved';
  if found then
    perform append_event(p_tenant, p_run, 'approval_superseded', jsonb_build_object('action', p_action, 'reason', 'IDENTICAL_SUCCEEDED'));
    perform request_approvals(p_tenant, p_run, r.segment, p_approvals);
  end if;
  update runs set attempts_in_round = 0 where tenant = p_tenant and id = p_run;
  return settle_run_status(p_tenant, p_run, true);
end
$$;

-- Decide. Run lock, approval lock, then the clock. Every attempt leaves an event; the transition happens once.
-- outcome: approved | rejected | vote_recorded (quorum not reached) | repeat (the same person, the same word)
--   | conflict (decided otherwise) | expired | fingerprint_mismatch | self_approval | not_found.
create function decide_approval(p_tenant text, p_approval uuid, p_verdict text, p_subject text, p_fingerprint text,
  p_vote uuid, p_sealed_words bytea,
  out outcome text, out state text, out decision_id uuid, out decided_by text, out decided_at timestamptz, out run_id uuid,
  out run_status text)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  p approvals;
  earlier votes;
  yes integer;
  at_time timestamptz;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select t.run_id into run_id from approvals t where t.tenant = p_tenant and t.id = p_approval;
  if run_id is null then
    outcome := 'not_found';
    return;
  end if;
  perform 1 from runs t where t.tenant = p_tenant and t.id = run_id for no key update;
  select * into p from approvals t where t.tenant = p_tenant and t.id = p_approval for no key update;
  select * into earlier from votes v where v.tenant = p_tenant and v.approval_id = p_approval and v.subject = p_subject;
  -- Read once: what is compared with decide_before is what is recorded.
  at_time := clock_timestamp();

  -- A word said again is a repeat as long as it agrees with how things stand; a word that lost is told who won.
  if earlier.verdict = p_verdict and (p.state = 'pending'
      or (p.decided_at is not null and (p.state = 'rejected') = (p_verdict = 'reject'))) then
    outcome := 'repeat';
  elsif p.state <> 'pending' then
    outcome := case when p.state = 'expired' then 'expired' else 'conflict' end;
  elsif at_time >= p.decide_before then
    perform expire_approval(p_tenant, p);
    p.state := 'expired';
    outcome := 'expired';
  elsif p_fingerprint is distinct from p.fingerprint then
    outcome := 'fingerprint_mismatch';
  elsif p_verdict = 'approve' and p.quorum > 1 and exists (
      select 1 from runs t where t.tenant = p_tenant and t.id = run_id and t.requested_by = p_subject) then
    outcome := 'self_approval';
  else
    -- While the quorum is open, a voter may take an approval back by rejecting.
    insert into votes (tenant, approval_id, subject, id, verdict, fingerprint, cast_at)
    values (p_tenant, p_approval, p_subject, p_vote, p_verdict, p_fingerprint, at_time)
    on conflict (tenant, approval_id, subject) do update set id = excluded.id, verdict = excluded.verdict,
      fingerprint = excluded.fingerprint, cast_at = excluded.cast_at;
    select count(*) into yes from votes v where v.tenant = p_tenant and v.approval_id = p_approval and v.verdict = 'approve';
    if p_verdict = 'reject' or yes >= p.quorum then
      p.state := case when p_verdict = 'reject' then 'rejected' else 'approved' end;
      update approvals t set state = p.state, decided_by = p_subject, decided_at = at_time, sealed_words = p_sealed_words,
        execute_before = case when p.state = 'approved' then at_time + t.execute_within_ms * interval '1 millisecond' end
      where t.tenant = p_tenant and t.id = p_approval;
      outcome := p.state;
    else
      outcome := 'vote_recorded';
    end if;
  end if;

  perform append_event(p_tenant, run_id, 'decision_' || outcome,
    jsonb_build_object('approval', p_approval, 'action', p.action_id, 'verdict', p_verdict, 'by', p_subject));
  if outcome = 'rejected' then
    perform close_action(p_tenant, run_id, p.action_id, 'rejected');
  end if;
  run_status := settle_run_status(p_tenant, run_id, false);
  select t.state, t.decided_by, t.decided_at into state, decided_by, decided_at
  from approvals t where t.tenant = p_tenant and t.id = p_approval;
  select v.id into decision_id from votes v where v.tenant = p_tenant and v.approval_id = p_approval
    and v.subject = coalesce(decided_by, p_subject);
end
$$;

-- Makes a lapsed approval a row. The caller holds the locks.
create function expire_approval(p_tenant text, p approvals) returns void
language plpgsql
as $$
begin
  update approvals t set state = 'expired' where t.tenant = p_tenant and t.id = p.id and t.state in ('pending', 'approved');
  if found then
    perform append_event(p_tenant, p.run_id, 'approval_expired', jsonb_build_object('approval', p.id, 'action', p.action_id));
    perform close_action(p_tenant, p.run_id, p.action_id, 'expired');
  end if;
end
$$;

-- Revoke: an approved, not yet consumed decision is withdrawn. outcome: revoked | conflict | not_found.
create function revoke_approval(p_tenant text, p_approval uuid, p_subject text,
  out outcome text, out state text, out run_id uuid, out run_status text)
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  p approvals;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select t.run_id into run_id from approvals t where t.tenant = p_tenant and t.id = p_approval;
  if run_id is null then
    outcome := 'not_found';
    return;
  end if;
  perform 1 from runs t where t.tenant = p_tenant and t.id = run_id for no key update;
  select * into p from approvals t where t.tenant = p_tenant and t.id = p_approval for no key update;
  outcome := case when p.state = 'approved' then 'revoked' else 'conflict' end;
  if outcome = 'revoked' then
    update approvals t set state = 'revoked' where t.tenant = p_tenant and t.id = p_approval;
    perform close_action(p_tenant, run_id, p.action_id, 'revoked');
  end if;
  state := case when outcome = 'revoked' then 'revoked' else p.state end;
  perform append_event(p_tenant, run_id, 'revoke_' || outcome,
    jsonb_build_object('approval', p_approval, 'action', p.action_id, 'by', p_subject));
  run_status := settle_run_status(p_tenant, run_id, false);
end
$$;

-- Sweep one run: expire what has lapsed, compute its status, re-announce it if nothing else will.
-- Returns what was done: expired | settled | announced | dead_outbox | nothing.
create function sweep_run(p_tenant text, p_run uuid, p_patience_ms bigint) returns text
language plpgsql set search_path = countersign, pg_temp
as $$
declare
  r runs;
  p approvals;
  last outbox;
  times integer;
  expired integer := 0;
  after text;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs where tenant = p_tenant and id = p_run for no key update;
  for p in
    select * from approvals t where t.tenant = p_tenant and t.run_id = p_run and (
      (t.state = 'pending' and t.decide_before <= clock_timestamp())
      or (t.state = 'approved' and t.execute_before <= clock_timestamp()))
    order by t.id for no key update
  loop
    perform expire_approval(p_tenant, p);
    expired := expired + 1;
  end loop;
  -- A worker has found that it could not carry it: not to be handed to the next one with every sweep.
  if parked_until(r, p_patience_ms) > clock_timestamp() then
    update runs set looked_at = clock_timestamp() where tenant = p_tenant and id = p_run;
    return case when expired > 0 then 'expired' else 'nothing' end;
  end if;
  -- A dead worker's run that nobody alive can carry waits visibly: no delivery would ever claim it.
  after := settle_run_status(p_tenant, p_run,
    r.status = 'running' and r.held_until < clock_timestamp() and not can_be_carried(r));
  -- An idempotent attempt that may not be sent again any more (cancelled; key lifetime, window or budget spent) waits for
  -- a person.
  if after = 'awaiting_reconciliation' then
    perform append_event(p_tenant, p_run, 'action_waits_for_person', jsonb_build_object('action', a.id, 'attempt', a.attempt))
    from actions a where a.tenant = p_tenant and a.run_id = p_run and a.state in ('dispatched', 'outcome_unknown')
      and a.recovery = 'idempotent' and a.reconcile_after <= clock_timestamp()
      and (r.cancel_requested_at is not null or not may_repeat(a));
    update actions a set reconcile_after = null, state = 'outcome_unknown'
    where a.tenant = p_tenant and a.run_id = p_run and a.state in ('dispatched', 'outcome_unknown')
      and a.recovery = 'idempotent' and a.reconcile_after <= clock_timestamp()
      and (r.cancel_requested_at is not null or not may_repeat(a));
  end if;
  if after <> r.status then
    return case when expired > 0 then 'expired' else 'settled' end;
  end if;
  update runs set looked_at = clock_timestamp() where tenant = p_tenant and id = p_run;
  if after = 'ready' or (after = 'running' and r.held_until < clock_timestamp()) then
    select * into last from outbox o where o.tenant = p_tenant and o.run_id = p_run order by o.position desc limit 1;
    if last.dead_at is not null then
      return 'dead_outbox';
    end if;
    -- Patience doubles with each announcement of the same wake: a long queue is not a lost job.
    select count(*) into times from outbox o where o.tenant = p_tenant and o.run_id = p_run and o.wake = r.wake;
    if last.id is null
       or last.sent_at < clock_timestamp() - p_patience_ms * power(2, least(greatest(times - 1, 0), 8)) * interval '1 millisecond' then
      insert into outbox (tenant, run_id, wake) values (p_tenant, p_run, r.wake);
      perform append_event(p_tenant, p_run, 'run_reannounced', jsonb_build_object('wake', r.wake, 'status', after));
      return 'announced';
    end if;
  end if;
  return case when expired > 0 then 'expired' else 'nothing' end;
end
$$;
