-- fq_test_message: why a message cannot be delivered: the error of what a dequeue, a reclaim or a letter does with it;
-- null: nothing is wrong with it.
-- Guarantees: it changes nothing. All of the message is read, and written as a text.
-- Locks: only the row, which the caller holds. Index: none, the row by ctid. Errors: none of the row's.
create function fairqueue.fq_test_message(p_id bigint, p_row tid)
returns text
language plpgsql
volatile
as $$
begin
  -- Written over and over: the lease and its end are two versions, and a check of the table is asked for each.
  update fairqueue.fq_message m
  set lease_id = 1,
    attempts = m.attempts + 1,
    deliveries = m.deliveries + 1
  where m.ctid = p_row
    and m.id is not distinct from p_id;
  if (
    select m.enqueued_at not between 0 and 253402300799999999 or m.priority < 0
      or not fairqueue.fq_headers_fit(m.headers::jsonb)
    from fairqueue.fq_message m
    where m.id = p_id
  ) then
    raise exception using errcode = '22023', message = 'its headers, its times or its priority are out of bounds';
  end if;
  perform octet_length(m.content || ''::bytea) + octet_length(convert_to(m.headers::text, 'UTF8'))
      + octet_length(convert_to(m.kind, 'UTF8')) + octet_length(convert_to(m.dedupe_key, 'UTF8'))
      + octet_length(convert_to(m.error, 'UTF8'))
  from fairqueue.fq_message m
  where m.id = p_id;
  raise exception using errcode = 'QF099', message = 'it is undone';
exception
  when sqlstate 'QF099' then
    return null;
  when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
    return sqlerrm;
end
$$;
