-- fq_messages_out: how many messages of each channel of a queue consumers hold. At most p_count messages are counted,
-- those whose leases expire first.
-- Guarantees: one query, which the planner inlines. Cost: the messages that are counted. Locks: none. Index:
-- fq_lease_expires_ix, fq_message_lease_ix. Errors: none.
create function fairqueue.fq_messages_out(p_queue text, p_count integer)
returns table (channel_id bigint, messages bigint)
language sql
stable
as $$
  select o.channel_id, count(*) as messages
  from (
    select m.channel_id
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
  group by o.channel_id
$$;
