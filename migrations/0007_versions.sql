-- Countersign, migration 7: runs across versions of their code. What waits on which version; a new run from a checkpoint.

-- Every run that has not ended, for the check before a deploy. Ids only; ordered, so that a caller can go on after one.
create function unended_runs(p_limit integer, p_after uuid)
returns table (tenant text, run_id uuid)
language sql security definer set search_path = countersign, pg_temp
as $$
  select r.tenant, r.id from runs r
  where r.status not in ('completed', 'failed', 'cancelled', 'superseded') and (p_after is null or r.id > p_after)
  order by r.id limit p_limit
$$;

-- Restart: ends the old run as superseded and begins a new one at its checkpoint p_number, under p_version.
-- The new run inherits the ledger rows that the checkpoint's calls belong to, with their operation keys: what is settled
-- answers from the ledger, what is undecided gets the new approvals in p_approvals. Effects are never repeated, so it is
-- refused when anything asked for after that checkpoint was ever sent, or any outcome is open.
-- Definer: a worker may not insert runs.
-- outcome: restarted | effects_after_checkpoint | actions_open | active (a worker holds it) | ended | session_moved_on
--   | no_checkpoint | not_found.
create function restart_run(p_tenant text, p_run uuid, p_number integer, p_new uuid, p_version text, p_sealed bytea,
  p_approvals jsonb, p_subject text, p_reason text, out outcome text, out blocking uuid[], out run_status text)
language plpgsql security definer set search_path = countersign, pg_temp
as $$
declare
  r runs;
  c checkpoints;
begin
  perform set_config('countersign.tenant', p_tenant, true);
  select * into r from runs t where t.tenant = p_tenant and t.id = p_run for no key update;
  if not found then
    outcome := 'not_found';
    return;
  end if;
  run_status := r.status;
  select * into c from checkpoints t where t.tenant = p_tenant and t.run_id = p_run and t.number = p_number;
  select array_agg(a.id order by a.id) into blocking from actions a
    where a.tenant = p_tenant and a.run_id = p_run and a.state in ('dispatched', 'outcome_unknown');
  outcome := case
    when c.number is null then 'no_checkpoint'
    when r.status in ('completed', 'cancelled', 'superseded') then 'ended'
    when r.status = 'running' and r.held_until > clock_timestamp() then 'active'
    when blocking is not null then 'actions_open'
    when r.session_id is not null and p_number <> r.segment then 'session_moved_on'
  end;
  if outcome is not null then
    return;
  end if;
  select array_agg(a.id order by a.id) into blocking from actions a
    where a.tenant = p_tenant and a.run_id = p_run and a.segment >= p_number and a.attempt > 0;
  if blocking is not null then
    outcome := 'effects_after_checkpoint';
    return;
  end if;

  perform 1 from approvals t where t.tenant = p_tenant and t.run_id = p_run order by t.id for no key update;
  update approvals t set state = 'superseded'
    where t.tenant = p_tenant and t.run_id = p_run and t.state in ('pending', 'approved');
  perform close_action(p_tenant, p_run, a.id, 'superseded') from actions a
    where a.tenant = p_tenant and a.run_id = p_run and a.segment >= p_number and a.state = 'prepared';
  update runs t set status = 'superseded', session_slot = null, reason = null, holder = null, held_until = null,
    ended_at = coalesce(t.ended_at, clock_timestamp()), changed_at = clock_timestamp()
  where t.tenant = p_tenant and t.id = p_run;
  perform append_event(p_tenant, p_run, 'run_superseded', jsonb_build_object('by', p_subject, 'new_run', p_new, 'checkpoint', p_number));

  insert into runs (tenant, id, workflow, version, status, segment, state_schema, manifest, input_digest, requested_by, usage,
    session_id, session_slot, session_version)
  values (p_tenant, p_new, r.workflow, p_version, 'parked', p_number, c.state_schema,
    case when p_number = r.segment then r.manifest else '{}' end, r.input_digest, p_subject, r.usage, r.session_id, r.session_id, r.session_version);
  insert into checkpoints (tenant, run_id, number, sealed, state_schema, epoch)
  values (p_tenant, p_new, p_number, p_sealed, c.state_schema, 0);
  perform append_event(p_tenant, p_new, 'run_restarted', jsonb_build_object('from', p_run, 'checkpoint', p_number,
    'workflow', r.workflow, 'version', p_version, 'by', p_subject));
  update actions t set run_id = p_new where t.tenant = p_tenant and t.run_id = p_run and t.segment = p_number - 1;
  perform request_approvals(p_tenant, p_new, p_number, p_approvals);
  run_status := settle_run_status(p_tenant, p_new, false);
  outcome := 'restarted';
end
$$;

grant create on schema countersign to countersign_loops;
alter function unended_runs(integer, uuid) owner to countersign_loops;
revoke create on schema countersign from countersign_loops;
revoke all on function unended_runs(integer, uuid),
  restart_run(text, uuid, integer, uuid, text, bytea, jsonb, text, text) from public;
grant execute on function unended_runs(integer, uuid),
  restart_run(text, uuid, integer, uuid, text, bytea, jsonb, text, text) to countersign_worker;
