-- fq_put_back: replace signals of channels that somebody has locked by one new signal for each channel and ordering key
-- with their sums, which is heard later, so that no hearing reads the old ones again. Signals that are gone count for
-- nothing. Returns how many signals were replaced, and the slots of the queue that they free, with their cost: the
-- caller frees these now, since a channel that is locked for long must not keep them.
-- Guarantees: nothing of what they tell is lost. The caller has the dispatch row locked.
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
