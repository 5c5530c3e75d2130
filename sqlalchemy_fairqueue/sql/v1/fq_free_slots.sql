-- fq_free_slots: free the queue's slots that signals have given back, without hearing the rest of them. Returns how
-- many.
-- Guarantees: a slot is freed once; a later fq_hear finds it freed. 0 while somebody else has the queue's state row.
-- Locks: as fq_lock_dispatcher; signals for update, skip locked: it waits for none.
-- Index: fq_signal_pkey. Errors: none.
create function fairqueue.fq_free_slots(p_queue text)
returns bigint
language plpgsql
volatile
as $$
declare
  v_locked record;
  v_freed bigint;
begin
  v_locked := fairqueue.fq_lock_dispatcher(p_queue);
  if v_locked.row_id is null then
    return 0;
  end if;
  with freeing as materialized (
    select g.ctid as row, g.queue_freed
    from fairqueue.fq_signal g
    where g.queue = p_queue
      and g.queue_freed > 0
    limit 1000
    for update skip locked
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
  update fairqueue.fq_queue_state q
  set row_version = q.row_version + 1,
    current_concurrency = q.current_concurrency - v_freed
  where q.ctid = v_locked.row_id
    and v_freed > 0;
  return v_freed;
end
$$;
