-- fq_is_limited: whether a queue has a limit, a rate or a shared limit, of all its channels together.
-- Guarantees: as a statement that begins now sees it. Locks: none. Index: fq_queue_pkey. Errors: none.
create function fairqueue.fq_is_limited(p_queue text)
returns boolean
language plpgsql
as $$
begin
  return exists (
    select
    from fairqueue.fq_queue q
    where q.name = p_queue
      and (num_nonnulls(q.max_concurrency, q.max_cost_out, q.limits) > 0 or q.rate_interval > 0)
  );
end
$$;
