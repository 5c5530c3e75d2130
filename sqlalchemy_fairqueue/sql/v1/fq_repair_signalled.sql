-- fq_repair_signalled: find those of the first 1,000 signals of a queue that cannot be applied, and make the states of
-- their channels anew. If such a signal frees slots of the queue, or if the count of these is what cannot be updated
-- (channel_id null), the state of the queue is made anew too. Rows: the channels that were made anew, and the error.
-- Guarantees: all signals are applied at once; where that fails, they are tried one after the other, and undone.
-- Locks: as fq_hear and fq_repair_channel: it waits for none. Index: as fq_hear. Errors: none of the rows'; QF007.
create function fairqueue.fq_repair_signalled(p_queue text)
returns table (channel_id bigint, reason text)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_channels bigint[] := '{}';
  v_reasons text[] := '{}';
  v_freeing bigint[] := '{}';
  r record;
begin
  begin
    perform fairqueue.fq_hear(p_queue);
    return;
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      reason := sqlerrm;
  end;
  begin
    for r in
      select g.ctid as row, g.id, g.channel_id, g.queue_freed
      from fairqueue.fq_signal g
      where g.queue = p_queue
      order by g.queue, g.xid, g.id
      limit 1000
    loop
      if r.queue_freed <> 0 then
        v_freeing := v_freeing || r.channel_id;
      end if;
      begin
        perform fairqueue.fq_hear_one(
          r.row::tid, r.id::bigint, r.channel_id::bigint, '-9000000000000000000'::bigint, fairqueue.fq_now()
        );
      exception
        when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
          if r.channel_id <> all (v_channels) then
            v_channels := v_channels || r.channel_id;
            v_reasons := v_reasons || sqlerrm;
          end if;
      end;
    end loop;
    raise exception using errcode = 'QF099', message = 'it is undone';
  exception
    when sqlstate 'QF099' then
      null;
  end;
  if v_channels = '{}' then
    if v_freeing <> '{}' and fairqueue.fq_repair_queue(p_queue) then
      return next;
    end if;
    return;
  end if;
  for channel_id, reason in
    select u.id, u.reason
    from unnest(v_channels, v_reasons) u(id, reason)
  loop
    if fairqueue.fq_repair_channel(p_queue, channel_id) then
      if channel_id = any (v_freeing) then
        perform fairqueue.fq_repair_queue(p_queue);
      end if;
      return next;
    end if;
  end loop;
end
$$;
