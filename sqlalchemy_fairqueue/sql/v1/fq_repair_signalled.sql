-- fq_repair_signalled: hear the signals of a queue. If that fails, find the channels that one of the first 1,000 signals
-- cannot be applied to, and make their states anew; without one, make the state of the queue anew (channel_id null).
-- Rows: what was made anew, and the error.
-- Guarantees: the signals of each channel are tried by themselves, and undone.
-- Locks: as fq_hear and fq_repair_channel: it waits for none. Index: as fq_hear. Errors: none of the rows'; QF007.
create function fairqueue.fq_repair_signalled(p_queue text)
returns table (channel_id bigint, reason text)
language plpgsql
as $$
declare
  v_problem text;
  v_found boolean := false;
  r record;
begin
  begin
    perform fairqueue.fq_hear(p_queue);
    return;
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      v_problem := sqlerrm;
  end;
  for r in
    select g.channel_id as id, array_agg(g.row) as rows, array_agg(g.id) as ids,
      array_agg(g.channel_id) as channels, max(abs(g.queue_freed::bigint)) > 0 as is_freeing
    from (
      select x.ctid as row, x.id, x.channel_id, x.queue_freed
      from fairqueue.fq_signal x
      where x.queue = p_queue
      order by x.queue, x.xid, x.id
      limit 1000
    ) g
    group by g.channel_id
  loop
    begin
      perform fairqueue.fq_hear_many(
        p_queue, r.rows::tid[], r.ids::bigint[], r.channels::bigint[], '-9000000000000000000'::bigint,
        fairqueue.fq_now(), false::boolean, false::boolean
      );
      raise exception using errcode = 'QF099', message = 'it is undone';
    exception
      when sqlstate 'QF099' then
        null;
      when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
        reason := sqlerrm;
        if fairqueue.fq_repair_channel(p_queue, r.id::bigint) then
          if r.is_freeing then
            perform fairqueue.fq_repair_queue(p_queue);
          end if;
          channel_id := r.id;
          v_found := true;
          return next;
        end if;
    end;
  end loop;
  if not v_found and fairqueue.fq_repair_queue(p_queue) then
    channel_id := null;
    reason := v_problem;
    return next;
  end if;
end
$$;
