-- fq_behind: the message that a message waits behind: the one of its ordering key that goes first. Null: it goes first
-- itself, has no ordering key, or is gone.
-- Guarantees: a message whose ordering key cannot be read waits behind none. It is tried in a subtransaction.
-- Locks: none. Index: fq_message_pkey, fq_message_ordering_ix. Errors: none of the row's.
create function fairqueue.fq_behind(p_message_id bigint)
returns bigint
language plpgsql
stable
as $$
begin
  return (
    select nullif(f.id, m.id)
    from fairqueue.fq_message m
    cross join lateral (
      -- The index begins with the one that goes first: no other one is asked.
      select x.id
      from fairqueue.fq_message x
      where x.channel_id = m.channel_id
        and x.ordering_key = m.ordering_key
        and fairqueue.fq_goes_first(x.channel_id, x.ordering_key, x.id)
      limit 1
    ) f
    where m.id = p_message_id
  );
exception
  when data_exception or program_limit_exceeded or internal_error then
    return null;
end
$$;
