-- fq_find_heads: the heads of channels: the first message of each that is not leased, by (dequeue_at, id), even if
-- somebody has it locked; null: the channel has none. p_heads_at, p_head_ids: where to begin; no message of the channel
-- comes before. p_taken: messages that the caller is about to take.
-- Guarantees: in the order of p_channels. Locks: none. Index: fq_message_ready_ix. Errors: none.
create function fairqueue.fq_find_heads(
  p_channels bigint[], p_heads_at bigint[], p_head_ids bigint[], p_taken bigint[],
  out heads_at bigint[], out head_ids bigint[]
)
language plpgsql
as $$
begin
  select array_agg(h.dequeue_at), array_agg(h.id)
  into heads_at, head_ids
  from unnest(p_channels, p_heads_at, p_head_ids) u(channel_id, head_at, head_id)
  left join lateral (
    select x.dequeue_at, x.id
    from fairqueue.fq_message x
    where x.channel_id = u.channel_id
      and x.lease_id is null
      and (x.dequeue_at, x.id) >= (u.head_at, u.head_id)
      and x.id <> all (p_taken)
    order by x.channel_id, x.dequeue_at, x.id
    limit 1
  ) h on true;
end
$$;
