-- fq_rebase_tags: begin the virtual time of a queue anew before it leaves its range: move all tags back alike. Returns
-- whether it did; false: somebody else has a state row of the queue locked.
-- Guarantees: the order of the channels and their distances stay.
-- Cost: all channels of the queue are updated, once in 8 * 10^18 / 2520 units of cost.
-- Locks: all state rows of the queue for no key update, skip locked: it waits for none.
-- Index: none, it reads all states once. Errors: none.
create function fairqueue.fq_rebase_tags(p_queue text)
returns boolean
language plpgsql
as $$
declare
  c_step constant bigint := 8000000000000000000;
  v_rows tid[];
begin
  v_rows := array(
    select s.ctid
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
      and s.tag is not null
    for no key update skip locked
  );
  if cardinality(v_rows) < (
    select count(*)
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
      and s.tag is not null
  ) then
    return false;
  end if;
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    -- The subtraction itself must not leave the range.
    tag = greatest(s.tag, c_step - 9000000000000000000) - c_step,
    ready_tag = case when s.ready_tag is not null then greatest(s.ready_tag, c_step - 9000000000000000000) - c_step end
  where s.ctid = any (v_rows);
  return true;
end
$$;
