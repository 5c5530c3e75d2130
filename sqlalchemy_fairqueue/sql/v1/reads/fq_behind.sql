-- fq_behind: the message that a message waits behind: the one of its ordering key that goes first, or the dead letter
-- that holds the key. Null: it goes first itself, has no ordering key, or is gone. p_message_id null: the first held
-- message of the channel.
-- Guarantees: a message whose ordering key cannot be read waits behind none: the read is tried in a subtransaction.
-- Locks: none. Index: fq_message_pkey, fq_message_ordering_ix, fq_message_held_ix, fq_dead_letter_holds_ix. Errors: none
-- of the row's.
create function fairqueue.fq_behind(p_message_id bigint, p_channel_id bigint)
returns bigint
language plpgsql
stable
as $$
begin
  return (
    select nullif(f.id, m.id)
    from fairqueue.fq_message m
    cross join lateral (
      (
        select d.message_id as id
        from fairqueue.fq_dead_letter d
        where d.channel_id = m.channel_id
          and d.ordering_key = m.ordering_key
          and d.holds
        limit 1
      )
      union all
      (
        select x.id
        from fairqueue.fq_message x
        where x.channel_id = m.channel_id
          and x.ordering_key = m.ordering_key
        order by x.channel_id, x.ordering_key, x.lease_id, (x.deliveries = 0), x.id
        limit 1
      )
      limit 1
    ) f
    where m.id = coalesce(
        p_message_id,
        (
          select h.id
          from fairqueue.fq_message h
          where h.channel_id = p_channel_id
            and h.dequeue_at = 9223372036854775807
          order by h.channel_id, h.ordering_key
          limit 1
        )
      )
  );
exception
  when data_exception or program_limit_exceeded or internal_error then
    return null;
end
$$;
