-- fq_channel_behind: the message that the first held message of a channel waits behind, see fq_behind. Null: none is
-- held.
-- Locks: none. Index: fq_message_held_ix, those of fq_behind. Errors: none of the row's.
create function fairqueue.fq_channel_behind(p_channel_id bigint)
returns bigint
language sql
stable
as $$
  select fairqueue.fq_behind(h.id)
  from (
    select m.id
    from fairqueue.fq_message m
    where m.channel_id = p_channel_id
      and m.dequeue_at = 9223372036854775807
    order by m.channel_id, m.ordering_key
    limit 1
  ) h
$$;
