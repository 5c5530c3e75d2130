-- fq_limit_members: the queues of a shared limit. By queue: share_row: its row of fq_limit_share; tag: what it has
-- drawn, in virtual time; contends_until: until when it counts as held back by the limit; how many of its messages are
-- out; what they cost; limit_row, rate_at: the row of the limit itself, and its rate.
-- Guarantees: a queue that is not held back now has at least the tag of the limit: idle times save nothing up.
-- Locks: none. Index: fq_limit_share_newest_ix, backwards, so that the live version of each queue is met first;
-- fq_queue_state_newest_ix. Errors: none.
create function fairqueue.fq_limit_members(p_limit text)
returns table (
  queue text, share_row tid, tag bigint, contends_until bigint, messages_out bigint, cost_out bigint, limit_row tid,
  rate_at bigint
)
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_virtual_time bigint;
  -- at first beyond any name
  v_before text := repeat(chr(1114111), 129);
begin
  select s.ctid, s.rate_at, s.tag into limit_row, rate_at, v_virtual_time
  from fairqueue.fq_limit_share s
  where s.limit_name = p_limit
    and s.queue = ''
  order by s.limit_name desc, s.queue desc, s.row_version desc
  limit 1;
  loop
    select s.ctid, s.queue, s.tag, s.contends_until into share_row, queue, tag, contends_until
    from fairqueue.fq_limit_share s
    where s.limit_name = p_limit
      and s.queue > ''
      and s.queue < v_before
    order by s.limit_name desc, s.queue desc, s.row_version desc
    limit 1;
    exit when not found;
    v_before := queue;
    if contends_until <= v_now then
      tag := greatest(tag, v_virtual_time);
    end if;
    select q.current_concurrency, q.current_cost into messages_out, cost_out
    from fairqueue.fq_newest_dispatch(v_before) q;
    messages_out := coalesce(messages_out, 0);
    cost_out := coalesce(cost_out, 0);
    return next;
  end loop;
end
$$;
