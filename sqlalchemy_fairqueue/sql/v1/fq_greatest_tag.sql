-- fq_greatest_tag: the greatest tag of the channels of a queue that are not ready: the virtual time while none is
-- ready.
-- Guarantees: as of the statement that calls it; below 0. A channel that becomes ready there has saved nothing up while
-- it was idle, and a new channel does not starve one that was served alone.
-- Locks: none. Index: the last entry of fq_channel_state_tag_ix. Errors: none.
create function fairqueue.fq_greatest_tag(p_queue text)
returns bigint
language plpgsql
as $$
declare
  v_tag bigint;
begin
  select s.tag into v_tag
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.tag is not null
    and s.ready_tag is null
  order by s.queue desc, s.tag desc
  limit 1;
  return coalesce(v_tag, -9000000000000000000);
end
$$;
