-- fq_configure_limit: make a shared limit, or change it, in the caller's transaction. p_changes: as in fq_limit_queue;
-- fields that it does not name stay, and are unlimited in a new limit.
-- Guarantees: takes effect with the commit and is exact: all leased messages of its queues count. While more are out
-- than a new limit allows, none is delivered. Until the commit the queues of the limit are not served.
-- Locks: the limit's row, then its state; waits for another change of the limit and for dequeues under way.
-- Index: fq_limit_pkey, fq_limit_share_newest_ix. Errors: QF001 bad argument; 40001; QF007: for operators of all
-- queues.
create function fairqueue.fq_configure_limit(p_name text, p_changes jsonb)
returns void
language plpgsql
security definer
as $$
declare
  v_new fairqueue.fq_limit;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], null::text, null::text[]);
  perform fairqueue.fq_check_names('{limit}'::text[], array[p_name]::text[]);
  insert into fairqueue.fq_limit as f (name)
  values (p_name)
  on conflict (name) do update
  set name = f.name
  returning * into v_new;
  v_new := jsonb_populate_record(v_new, fairqueue.fq_changed_policy(to_jsonb(v_new)::jsonb, p_changes, 'limit'::text));
  update fairqueue.fq_limit f
  set max_concurrency = v_new.max_concurrency,
    max_cost_out = v_new.max_cost_out,
    rate_interval = v_new.rate_interval,
    rate_burst = v_new.rate_burst,
    rate_of = v_new.rate_of
  where f.name = p_name;
  update fairqueue.fq_limit_share s
  set row_version = s.row_version + 1,
    rate_at = least(s.rate_at, fairqueue.fq_now() + v_new.rate_burst * v_new.rate_interval)
  where s.limit_name = p_name
    and s.queue = '';
  if not found then
    insert into fairqueue.fq_limit_share (limit_name, queue)
    values (p_name, '');
  end if;
end
$$;
