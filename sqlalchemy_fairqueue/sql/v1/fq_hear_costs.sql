-- fq_hear_costs: move channels of a queue that is fair by cost to their places in virtual time, after fq_hear has
-- applied their signals. If messages cost more or less than was charged, the difference moves the tag of their channel.
-- A channel that has become ready starts at the virtual time at the earliest. Returns the least start tag of those that
-- are ready now; null: none is.
-- Guarantees: as fq_tag_heard. A channel for which nothing changes is not written.
-- Locks: only rows that the caller holds. Index: none, rows by ctid. Errors: none.
create function fairqueue.fq_hear_costs(p_states tid[], p_costs bigint[], p_virtual_time bigint)
returns bigint
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_first_tag bigint;
begin
  with moved as (
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      tag = n.tag,
      tag_rest = n.rest,
      next_dequeue_at = case when n.is_ready then n.tag else s.next_dequeue_at end
    from (
      select o.ctid as row, r.is_ready, h.tag, h.rest
      from unnest(p_states, p_costs) u(row, cost)
      join fairqueue.fq_channel_state o on o.ctid = u.row
      cross join lateral (
        select o.next_dequeue_at < 0
          or (
            o.next_dequeue_at is not null
            and (o.max_concurrency is null or o.current_concurrency < o.max_concurrency)
            and greatest(
              o.head_dequeue_at, fairqueue.fq_rate_allows_at(o.rate_at, o.rate_interval, o.rate_burst)
            ) <= v_now
          ) is true as is_ready
      ) r
      cross join lateral fairqueue.fq_tag_heard(
        o.next_dequeue_at::bigint, o.tag::bigint, o.tag_rest::bigint, o.weight, u.cost::bigint,
        (r.is_ready is true)::boolean, p_virtual_time
      ) h
      where u.cost <> 0
        or (r.is_ready and o.next_dequeue_at >= 0)
    ) n
    where s.ctid = n.row
    returning s.next_dequeue_at
  )
  select min(m.next_dequeue_at) into v_first_tag
  from moved m
  where m.next_dequeue_at < 0;
  return v_first_tag;
end
$$;
