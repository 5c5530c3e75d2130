-- fq_virtual_time: the virtual time of a queue beside ready channels up to p_after that somebody has locked: the least
-- start tag of those behind or, while none is ready there, the greatest tag of all.
-- Guarantees: as of the statement that calls it; below 0, and p_after at least, where the ready order begins. A channel
-- that becomes ready starts there, or at its own tag if that is greater: it saves nothing up while it is idle, and a
-- newcomer does not starve who was served alone.
-- Locks: none. Index: fq_channel_state_ready_ix; that of fq_greatest_tag. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_virtual_time(p_queue text, p_after bigint)
returns bigint
language plpgsql
volatile
as $$
declare
  v_tag bigint;
begin
  select s.ready_tag into v_tag
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.ready_tag > p_after
  order by s.queue, s.ready_tag
  limit 1;
  return coalesce(v_tag, greatest(p_after, fairqueue.fq_greatest_tag(p_queue)));
end
$$;
