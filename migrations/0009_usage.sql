-- Countersign, migration 9: usage. What a run's model calls cost is the sum over its journal; what was paid for and came
-- to nothing is counted apart.

create table wasted_calls (
  tenant text not null,
  run_id uuid not null,
  epoch integer not null,
  id uuid not null default gen_random_uuid(),
  usage jsonb not null,
  at timestamptz not null default clock_timestamp(),
  primary key (run_id, epoch, id, tenant)
);
comment on table wasted_calls is 'What a claim paid models for nothing, as far as its worker could still say so: calls that failed, answers that could not
be stored. Evidence, kept from whoever holds it, whatever the epoch.';
alter table wasted_calls enable row level security;
alter table wasted_calls force row level security;
create policy "only the named tenant" on wasted_calls using (tenant = nullif(current_setting('countersign.tenant', true), ''));

-- p_claim: the epoch of the claim that paid; a fact about it, no fence.
create function count_wasted(p_tenant text, p_run uuid, p_claim integer, p_usage jsonb) returns void
language plpgsql set search_path = countersign, pg_temp
as $$
begin
  perform set_config('countersign.tenant', p_tenant, true);
  insert into wasted_calls (tenant, run_id, epoch, usage) values (p_tenant, p_run, p_claim, p_usage);
end
$$;

revoke all on function count_wasted(text, uuid, integer, jsonb) from public;
grant execute on function count_wasted(text, uuid, integer, jsonb) to countersign_worker;
grant select, insert on wasted_calls to countersign_worker;
grant select on wasted_calls to countersign_api;
-- What the journal's rows cost, and nothing of what they say.
grant select (tenant, run_id, segment, take, usage) on model_calls to countersign_api;
