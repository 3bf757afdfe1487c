-- Countersign, migration 10: a claim that ended for want of Postgres is not the run's fault.

-- Hands a run back whose worker could not get an answer, or could not renew its hold in time, as soon as Postgres answers
-- it again: at once instead of when the hold runs out, and with its attempt. Claims of the segment beyond p_max_claims keep
-- theirs: what takes Postgres, or its worker, away each time it is carried must be given up some day.
-- Returns the status after; null: fenced, somebody has taken it over or it has moved on.
create function hand_back_run(p_tenant text, p_run uuid, p_epoch integer, p_max_claims integer)
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
  if r.claims_in_segment <= p_max_claims then
    update runs set attempts_in_round = greatest(attempts_in_round - 1, 0) where tenant = p_tenant and id = p_run;
  end if;
  return settle_run_status(p_tenant, p_run, true, 0, 'POSTGRES_UNAVAILABLE');
end
$$;

revoke all on function hand_back_run(text, uuid, integer, integer) from public;
grant execute on function hand_back_run(text, uuid, integer, integer) to countersign_worker;
