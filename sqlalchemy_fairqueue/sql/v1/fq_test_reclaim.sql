-- fq_test_reclaim: why a message whose lease has expired cannot be taken back, or become a dead letter where its
-- attempts are used up; null: it can.
-- Guarantees: it changes nothing. A letter with the id of the message does not count, for fq_reclaim passes by it.
-- Locks: only the row, which the caller holds. Index: none, the row by ctid. Errors: none of the row's.
create function fairqueue.fq_test_reclaim(p_queue text, p_id bigint, p_row tid)
returns text
language plpgsql
volatile
as $$
begin
  if exists (
    select
    from fairqueue.fq_message m
    where m.ctid = p_row
      and m.id is not distinct from p_id
      and m.attempts >= m.max_attempts
  ) then
    perform fairqueue.fq_bury_messages(
      p_queue, array[p_id]::bigint[], array[p_row]::tid[], array['tried']::text[], null::text[]
    );
  else
    perform fairqueue.fq_return_messages(
      p_queue, array[p_id]::bigint[], array[p_row]::tid[], null::bigint[], null::text[], 0::integer, 'expired'::text
    );
  end if;
  raise exception using errcode = 'QF099', message = 'it is undone';
exception
  when sqlstate 'QF099' or unique_violation then
    return null;
  when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
    return sqlerrm;
end
$$;
