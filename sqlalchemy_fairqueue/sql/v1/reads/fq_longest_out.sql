-- fq_longest_out: for each of some channels of a queue the message that has been leased longest, and since when; if the
-- queue records no history, the one with the least id, and null. p_channels null: one row, for the whole queue.
-- Guarantees: one snapshot. It looks at p_count leased messages, those whose leases expire first. kind null: it cannot
-- be read.
-- Cost: the leased messages of the queue, up to p_count. Locks: none. Index: fq_lease_expires_ix, fq_message_lease_ix,
-- fq_channel_pkey, fq_message_pkey. Errors: QF001 bad count; QF007; none of a row's.
create function fairqueue.fq_longest_out(p_queue text, p_channels text[], p_count integer)
returns table (channel text, message_id bigint, kind text, delivered_at bigint)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_longest_out has count'::text, p_count::bigint, 1::bigint, null::bigint);
  return query
  select f.name, f.id, fairqueue.fq_kind(f.id::bigint), f.delivered_at
  from (
    select distinct on (case when p_channels is not null then o.channel_id end) c.name, o.id, o.delivered_at
    from (
      select m.channel_id, m.id, m.delivered_at
      from (
        select e.id
        from fairqueue.fq_lease e
        where e.queue = p_queue
        order by e.queue, e.expires_at
        limit p_count
      ) l
      join fairqueue.fq_message m on m.lease_id = l.id
      limit p_count
    ) o
    join fairqueue.fq_channel c on c.id = o.channel_id
    where p_channels is null
      or c.name = any (p_channels)
    order by case when p_channels is not null then o.channel_id end, o.delivered_at, o.id
  ) f;
end
$$;
