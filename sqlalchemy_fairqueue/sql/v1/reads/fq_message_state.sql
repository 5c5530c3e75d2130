-- fq_message_state: the state of a message with this lease and position at p_now: leased, scheduled, held or ready.
-- Guarantees: one expression. A message that the dispatcher held back has the greatest position; it is ready once it
-- goes first. Locks: none. Index: those of fq_behind. Errors: none of the row's.
create function fairqueue.fq_message_state(p_message_id bigint, p_lease_id bigint, p_dequeue_at bigint, p_now bigint)
returns text
language sql
stable
as $$
  select case
    when p_lease_id is not null then 'leased'
    when p_dequeue_at > p_now and p_dequeue_at < 9223372036854775807 then 'scheduled'
    when num_nonnulls(fairqueue.fq_behind(p_message_id, null::bigint)) = 1 then 'held'
    else 'ready'
  end
$$;
