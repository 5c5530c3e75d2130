-- fq_wait_for_result: register that somebody waits for p_wait microseconds for the result of a message: the transaction
-- that ends the message then notifies (see fq_wake_results). 0: it waits no more.
-- Guarantees: one wait a message and waiter; a further call moves its end. The waiter listens, commits this call, and
-- reads once more before it waits. A transaction that took its snapshot before that commit notifies nobody: a waiter
-- polls as well.
-- Locks: its own row. Nobody who ends a message waits for it. Index: fq_result_wait_pkey. Errors: QF001 bad argument;
-- QF007.
create function fairqueue.fq_wait_for_result(p_queue text, p_message_id bigint, p_waiter uuid, p_wait bigint)
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, '{}'::text[]);
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  perform fairqueue.fq_check_names('{waiter}'::text[], array[p_waiter]::text[]);
  perform fairqueue.fq_check_number('fq_wait_for_result has message'::text, p_message_id, 1::bigint, null::bigint);
  perform fairqueue.fq_check_number('fq_wait_for_result has wait'::text, p_wait, 0::bigint, 31536000000000::bigint);
  delete from fairqueue.fq_result_wait w
  where p_wait = 0
    and w.message_id = p_message_id
    and w.waiter = p_waiter;
  insert into fairqueue.fq_result_wait as w (message_id, waiter, waiting_until)
  select p_message_id, p_waiter, fairqueue.fq_now() + p_wait
  where p_wait > 0
  on conflict on constraint fq_result_wait_pkey do update
  set waiting_until = excluded.waiting_until;
end
$$;
