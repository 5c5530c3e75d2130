-- fq_is_of_kind: whether a message is of a kind; null: it is gone.
-- Guarantees: a message whose kind cannot be read has none: the read is tried in a subtransaction.
-- Locks: none. Index: fq_message_pkey. Errors: none of the row's.
create function fairqueue.fq_is_of_kind(p_message_id bigint, p_kind text)
returns boolean
language plpgsql
stable
as $$
begin
  return (
    select m.kind = p_kind
    from fairqueue.fq_message m
    where m.id = p_message_id
  );
exception
  when data_exception or program_limit_exceeded or internal_error then
    return false;
end
$$;
