-- fq_free_queue_slots: take the slots of the queue from signals that stay, since somebody else has their channel: a
-- channel that is locked for long must not keep the slots of its queue. Returns how many slots.
-- Guarantees: the caller, who has the state row of the queue locked, counts each slot once.
-- Locks: signals for update, skip locked. Index: none, rows by ctid. Errors: none.
create function fairqueue.fq_free_queue_slots(p_rows tid[], p_ids bigint[])
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
  v_freed bigint;
begin
  with freeing as materialized (
    select g.ctid as row, g.queue_freed
    from unnest(p_rows, p_ids) u(row, id)
    join fairqueue.fq_signal g on g.ctid = u.row and g.id is not distinct from u.id and g.queue_freed > 0
    for update of g skip locked
  ),
  freed as (
    update fairqueue.fq_signal g
    set queue_freed = 0
    from freeing f
    where g.ctid = f.row
    returning f.queue_freed
  )
  select coalesce(sum(f.queue_freed), 0) into v_freed
  from freed f;
  return v_freed;
end
$$;
