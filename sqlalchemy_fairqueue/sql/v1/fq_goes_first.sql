-- fq_goes_first: whether a message with an ordering key is the one of its key that may be out: no other one is, and none
-- that was added before is left.
-- Guarantees: one expression. Who takes messages of a channel has its state locked, so that two callers never both hear
-- yes of two messages of a key. Locks: none. Index: fq_message_ordering_ix, fq_message_ordering_out_ix. Errors: none.
create function fairqueue.fq_goes_first(p_channel_id bigint, p_ordering_key text, p_id bigint)
returns boolean
language sql
stable
as $$
  select not exists (
      select
      from fairqueue.fq_message m
      where m.channel_id = p_channel_id
        and m.ordering_key = p_ordering_key
        and m.id < p_id
    )
    and not exists (
      select
      from fairqueue.fq_message m
      where m.channel_id = p_channel_id
        and m.ordering_key = p_ordering_key
        and m.lease_id is not null
    )
$$;
