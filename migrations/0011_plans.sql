-- Countersign, migration 11: plans. Each protocol step finds its rows by their keys. A plan that reads a whole table is
-- the cheapest while that table is small, is then kept by every connection, and grows with the table until statistics
-- are gathered again: a burst of new runs would pay for all of them at each step. Where there is no index after all (the
-- few workers), servers before 18 call the plan so costly that they would compile it. Plans are made once: for an array of
-- calls one that knows its length looks cheaper each time, and costs more to make than to carry out.
do $$
declare
  migrator text := current_user;
  step record;
begin
  for step in select p.oid::regprocedure as name, p.proowner::regrole as owner from pg_proc p
    where p.pronamespace = 'countersign'::regnamespace and 'search_path=countersign, pg_temp' = any (p.proconfig) loop
    execute format('set local role %s', step.owner);
    execute format('alter function %s set enable_seqscan = off', step.name);
    execute format('alter function %s set jit = off', step.name);
    execute format('alter function %s set plan_cache_mode = force_generic_plan', step.name);
  end loop;
  execute format('set local role %I', migrator);
end
$$;
