-- fq_end_result_wait: end the wait of a process for the result of a message. It is no error if none is registered.
-- Locks: its own row. Index: fq_result_wait_pkey. Errors: QF007.
create function fairqueue.fq_end_result_wait(p_queue text, p_message_id bigint, p_waiter uuid)
returns void
language plpgsql
volatile
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, '{}'::text[]);
  delete from fairqueue.fq_result_wait w
  where w.message_id = p_message_id
    and w.waiter = p_waiter;
end
$$;
