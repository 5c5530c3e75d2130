-- fq_try_messages: the error by which a dequeue cannot take these messages together; null: it can.
-- Guarantees: it changes nothing. All of each message is read, and written as a text.
-- Locks: only rows that the caller holds. Index: fq_message_pkey; messages by ctid. Errors: none of the rows'.
create function fairqueue.fq_try_messages(p_rows tid[], p_ids bigint[])
returns text
language plpgsql
as $$
begin
  update fairqueue.fq_message m
  set lease_id = 1,
    attempts = m.attempts + 1,
    deliveries = m.deliveries + 1
  from unnest(p_rows, p_ids) u(row, id)
  where m.ctid = u.row
    and m.id is not distinct from u.id;
  perform octet_length(m.content || ''::bytea) + octet_length(convert_to(m.headers::text, 'UTF8'))
      + octet_length(convert_to(m.kind, 'UTF8')) + octet_length(convert_to(m.key, 'UTF8'))
      + octet_length(convert_to(m.error, 'UTF8')) + octet_length(convert_to(m.ordering_key, 'UTF8'))
  from unnest(p_ids) u(id)
  join fairqueue.fq_message m on m.id = u.id;
  raise exception using errcode = 'QF099', message = 'it is undone';
exception
  when sqlstate 'QF099' then
    return null;
  when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
    return sqlerrm;
end
$$;
