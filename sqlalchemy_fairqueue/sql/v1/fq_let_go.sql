-- fq_let_go: move the first message of each of p_ordering_keys back into the order of its channel, if it was held back
-- at the end and goes first now (fq_goes_first). p_channel_ids: the channel of each key. The caller attends to the
-- queue. Returns whether messages were moved.
-- Guarantees: a signal tells of the message as if it was enqueued now, behind what waits in its channel. If somebody
-- has locked this message, or the one before it, whose end may not see that this one is held back, a signal lets the
-- key be looked at again. (Who locked a row and then updated it is the xmin and the xmax of the new version.)
-- Locks: messages, for no key update, skip locked. Index: fq_message_ordering_ix, fq_dead_letter_holds_ix; rows by
-- ctid. Errors: none.
create function fairqueue.fq_let_go(p_queue text, p_channel_ids bigint[], p_ordering_keys text[], p_now bigint)
returns boolean
language plpgsql
as $$
declare
  v_has_gone boolean;
begin
  with first as materialized (
    select f.row, f.id, f.is_held, k.channel_id, k.ordering_key
    from (
      select distinct u.channel_id, u.ordering_key
      from unnest(p_channel_ids, p_ordering_keys) u(channel_id, ordering_key)
    ) k
    cross join lateral (
      (
        select null::tid as row, null::bigint as id, d.xmin, d.xmax, false as is_held
        from fairqueue.fq_dead_letter d
        where d.channel_id = k.channel_id
          and d.ordering_key = k.ordering_key
          and d.holds
        limit 1
      )
      union all
      (
        select m.ctid, m.id, m.xmin, m.xmax, m.lease_id is null and m.dequeue_at = 9223372036854775807
        from fairqueue.fq_message m
        where m.channel_id = k.channel_id
          and m.ordering_key = k.ordering_key
        order by m.channel_id, m.ordering_key, m.lease_id, (m.deliveries = 0), m.id
        limit 1
      )
      limit 1
    ) f
    where f.is_held
      or f.xmax <> '0'::xid
      and f.xmax <> f.xmin
  ),
  locked as materialized (
    select x.ctid as row
    from first f
    join fairqueue.fq_message x
      on x.ctid = f.row
      and x.id is not distinct from f.id
      and num_nulls(x.lease_id) = 1
    where f.is_held
    for no key update of x skip locked
  ),
  gone as (
    update fairqueue.fq_message m
    set dequeue_at = (
        select p.dequeue_at
        from fairqueue.fq_position_in(m.channel_id, p_now, m.priority) p
      ),
      returned_at = p_now
    from locked l
    where m.ctid = l.row
    returning m.id, m.dequeue_at
  ),
  told as (
    insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, ordering_key)
    select p_queue, f.channel_id, g.dequeue_at, g.id, case when g.id is null then f.ordering_key end
    from first f
    left join gone g on g.id = f.id
  )
  select count(*) > 0 into v_has_gone
  from gone g;
  return v_has_gone;
end
$$;
