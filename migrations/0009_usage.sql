-- Countersign, migration 9: usage. What a run's model calls cost is the sum over its journal; what was paid for and came
-- to nothing is counted apart.

alter table runs add column wasted jsonb not null default '{}';
comment on column runs.wasted is 'Model calls that failed or whose answers could not be stored, as far as a worker could still say so.';

-- Adds to it. Not fenced: a call costs the same, whoever made it.
create function count_wasted(p_tenant text, p_run uuid, p_wasted jsonb) returns void
language plpgsql set search_path = countersign, pg_temp
as $$
begin
  perform set_config('countersign.tenant', p_tenant, true);
  update runs r set wasted = r.wasted || (
    select jsonb_object_agg(more.key, coalesce((r.wasted ->> more.key)::bigint, 0) + more.value::bigint)
    from jsonb_each_text(p_wasted) more)
  where r.tenant = p_tenant and r.id = p_run;
end
$$;

revoke all on function count_wasted(text, uuid, jsonb) from public;
grant execute on function count_wasted(text, uuid, jsonb) to countersign_worker;
-- What the journal's rows cost, and nothing of what they say.
grant select (tenant, run_id, segment, take, usage) on model_calls to countersign_api;
