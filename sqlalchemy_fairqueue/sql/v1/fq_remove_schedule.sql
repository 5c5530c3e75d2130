-- fq_remove_schedule: remove a schedule of a channel and the record of its slots, in the caller's transaction. False:
-- there is none.
-- Guarantees: after the commit no slot of it is run. Messages that it enqueued stay.
-- Locks: the schedule's row, waits for a transaction that has it (a worker that runs a slot, shortly); its slots.
-- Index: fq_schedule_name_key, fq_schedule_slot_pkey. Errors: 40001; QF007.
create function fairqueue.fq_remove_schedule(p_queue text, p_channel text, p_name text)
returns boolean
language plpgsql
volatile
security definer
as $$
declare
  v_id bigint;
begin
  perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, array[p_channel]::text[]);
  delete from fairqueue.fq_schedule s
  where s.queue = p_queue
    and s.channel = p_channel
    and s.name = p_name
  returning s.id into v_id;
  if v_id is null then
    return false;
  end if;
  -- A new statement sees the slots of a worker that was waited for.
  delete from fairqueue.fq_schedule_slot t
  where t.schedule_id = v_id;
  return true;
end
$$;
