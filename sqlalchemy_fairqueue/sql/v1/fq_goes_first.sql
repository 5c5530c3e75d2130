-- fq_goes_first: whether a message is the one of its ordering key that may be out. First comes the one that is leased,
-- then those that were leased before, then the others as they were added. None may while a dead letter holds the key. A
-- message without an ordering key always may.
-- Guarantees: one expression, which the planner inlines, since it returns a table: it would call a function that
-- returns a value, for each row. Who takes messages of a channel has its state row locked, so no two callers ever hear
-- yes of two messages of a key.
-- Locks: none. Index: fq_message_ordering_ix, fq_dead_letter_holds_ix. Errors: none.
create function fairqueue.fq_goes_first(p_channel_id bigint, p_ordering_key text, p_id bigint)
returns table (goes boolean)
language sql
stable
as $$
  select p_ordering_key is null
    or p_id = (
      select m.id
      from fairqueue.fq_message m
      where m.channel_id = p_channel_id
        and m.ordering_key = p_ordering_key
      order by m.channel_id, m.ordering_key, m.lease_id, (m.deliveries = 0), m.id
      limit 1
    )
    and not exists (
      select
      from fairqueue.fq_dead_letter d
      where d.channel_id = p_channel_id
        and d.ordering_key = p_ordering_key
        and d.holds
    )
$$;
