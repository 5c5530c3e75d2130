-- fq_kind: the kind of a message; null: it is gone, or its kind cannot be read: the read is tried in a subtransaction.
-- Locks: none. Index: fq_message_pkey. Errors: none of the row's.
create function fairqueue.fq_kind(p_message_id bigint)
returns text
language plpgsql
stable
as $$
begin
  return (
    select m.kind || ''
    from fairqueue.fq_message m
    where m.id = p_message_id
  );
exception
  when data_exception or program_limit_exceeded or internal_error then
    return null;
end
$$;
