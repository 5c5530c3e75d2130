-- fq_newest_dispatch: the dispatch row of a queue; no row: it has none.
-- Guarantees: as fq_newest_state. Locks: none. Index: fq_queue_state_newest_ix. Errors: none.
create function fairqueue.fq_newest_dispatch(p_queue text)
returns setof fairqueue.fq_queue_state
language sql
stable
as $$
  select s.*
  from fairqueue.fq_queue_state s
  where s.queue = p_queue
  order by s.queue desc, s.row_version desc
  limit 1
$$;
