-- fq_repair_signalled: find those of the first 1,000 signals of a queue that cannot be applied, and make the states of
-- their channels anew. If such a signal frees slots of the queue, the state of the queue is made anew too. Rows: the
-- channels that were made anew, and the error of the signal.
-- Guarantees: all signals are applied at once; where that fails, each is tried by itself and undone.
-- Locks: as fq_hear and fq_repair_channel: it waits for none. Index: as fq_hear. Errors: none of the rows'; QF007.
create function fairqueue.fq_repair_signalled(p_queue text)
returns table (channel_id bigint, reason text)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  r record;
begin
  begin
    perform fairqueue.fq_hear(p_queue);
    return;
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      null;
  end;
  for r in
    select g.ctid as row, g.id, g.channel_id, g.queue_freed
    from fairqueue.fq_signal g
    where g.queue = p_queue
    order by g.queue, g.xid, g.id
    limit 1000
  loop
    begin
      perform fairqueue.fq_hear_one(
        r.row::tid, r.id::bigint, r.channel_id::bigint, '-9000000000000000000'::bigint, fairqueue.fq_now()
      );
      raise exception using errcode = 'QF099', message = 'it is undone';
    exception
      when sqlstate 'QF099' then
        null;
      when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
        channel_id := r.channel_id;
        reason := sqlerrm;
        if fairqueue.fq_repair_channel(p_queue, r.channel_id::bigint) then
          if r.queue_freed <> 0 then
            perform fairqueue.fq_repair_queue(p_queue);
          end if;
          return next;
        end if;
    end;
  end loop;
end
$$;
