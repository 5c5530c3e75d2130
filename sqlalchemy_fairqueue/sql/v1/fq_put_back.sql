-- fq_put_back: make one new signal a channel and ordering key of those of some signals that are still there, since
-- somebody has their channels: it is heard later, and nobody walks over what was heard before. Returns how many signals
-- that were, and the slots of the queue that they give back: a channel that is locked for long must not keep these.
-- Guarantees: nothing of what they tell is lost. The caller has the state of the queue locked.
-- Locks: signals for update, skip locked. Index: none, rows by ctid. Errors: none.
create function fairqueue.fq_put_back(
  p_queue text, p_rows tid[], p_ids bigint[],
  out signals bigint, out freed bigint, out freed_cost bigint
)
language plpgsql
as $$
begin
  with claimed as materialized (
    select g.ctid as row
    from unnest(p_rows, p_ids) u(row, id)
    join fairqueue.fq_signal g on g.ctid = u.row and g.id is not distinct from u.id
    for update of g skip locked
  ),
  gone as (
    delete from fairqueue.fq_signal g
    using claimed c
    where g.ctid = c.row
    returning g.channel_id, g.bounded, g.dequeue_at, g.message_id, g.added, g.freed, g.freed_cost, g.queue_freed,
      g.queue_freed_cost, g.dropped, g.cost, g.took, g.ordering_key
  ),
  back as (
    insert into fairqueue.fq_signal (
      queue, channel_id, bounded, dequeue_at, message_id, added, freed, freed_cost, dropped, cost, took,
      ordering_key
    )
    select p_queue, t.channel_id, t.bounded, t.least[1], t.least[2], t.added, t.freed, t.freed_cost, t.dropped,
      t.cost, t.took, t.ordering_key
    from (
      select g.channel_id, g.bounded, g.ordering_key, sum(g.added) as added, sum(g.freed) as freed,
        sum(g.freed_cost) as freed_cost,
        sum(g.dropped) as dropped, sum(g.cost) as cost, avg(g.took)::bigint as took,
        min(array[g.dequeue_at, g.message_id]) filter (where g.message_id is not null) as least
      from gone g
      group by g.channel_id, g.bounded, g.ordering_key
    ) t
  )
  select count(*), coalesce(sum(g.queue_freed), 0), sum(g.queue_freed_cost) into signals, freed, freed_cost
  from gone g;
end
$$;
