-- fq_find_named: the messages of a queue with certain names. By name: its channel, and the key or the ordering key of
-- the messages, or both. Returns each message with the position of its name, in the order in which they go
-- (fq_goes_first).
-- Guarantees: one snapshot; messages that have ended are not found. Locks: none.
-- Index: fq_channel_queue_name_key, fq_message_key, fq_message_ordering_ix. Errors: QF007.
create function fairqueue.fq_find_named(p_queue text, p_channels text[], p_keys text[], p_ordering_keys text[])
returns table (message_id bigint, ordinal integer)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, p_channels);
  return query
  select m.id, u.ord::integer
  from unnest(p_channels, p_keys, p_ordering_keys) with ordinality u(channel, key, ordering_key, ord)
  cross join lateral fairqueue.fq_find_channel(p_queue, u.channel::text) c
  cross join lateral (
    select x.id, x.lease_id, x.deliveries
    from fairqueue.fq_message x
    where x.channel_id = c.id
      and x.key = u.key
      and (u.ordering_key is null or x.ordering_key = u.ordering_key)
    union all
    select x.id, x.lease_id, x.deliveries
    from fairqueue.fq_message x
    where x.channel_id = c.id
      and x.ordering_key = u.ordering_key
      and u.key is null
  ) m
  order by u.ord, m.lease_id, (m.deliveries = 0), m.id;
end
$$;
