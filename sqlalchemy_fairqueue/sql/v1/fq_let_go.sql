-- fq_let_go: put the next message of ordering keys back into the order of its channel, where it waits at the end and no
-- other one of the key is out. By key: its channel. The caller attends to the queue.
-- Guarantees: a signal tells of the message as of one that is enqueued now, behind what waits in its channel. A message
-- that somebody has locked is looked at again. Returns whether there are such signals.
-- Locks: messages, for no key update, skip locked. Index: fq_message_ordering_ix, fq_message_ordering_out_ix; rows by
-- ctid. Errors: none.
create function fairqueue.fq_let_go(p_queue text, p_channel_ids bigint[], p_ordering_keys text[], p_now bigint)
returns boolean
language plpgsql
as $$
declare
  v_told integer;
  c_last constant bigint := 9223372036854775807;
begin
  with waiting as materialized (
    select f.row, f.id, k.channel_id, k.ordering_key, s.priority_aging
    from (
      select distinct u.channel_id, u.ordering_key
      from unnest(p_channel_ids, p_ordering_keys) u(channel_id, ordering_key)
    ) k
    cross join lateral (
      select m.ctid as row, m.id, m.dequeue_at, m.lease_id
      from fairqueue.fq_message m
      where m.channel_id = k.channel_id
        and m.ordering_key = k.ordering_key
      order by m.channel_id, m.ordering_key, m.id
      limit 1
    ) f
    left join lateral (
      select n.priority_aging
      from fairqueue.fq_channel_state n
      where n.channel_id = k.channel_id
      order by n.channel_id desc, n.row_version desc
      limit 1
    ) s on true
    where f.dequeue_at = c_last
      and f.lease_id is null
      and not exists (
        select
        from fairqueue.fq_message m
        where m.channel_id = k.channel_id
          and m.ordering_key = k.ordering_key
          and m.lease_id is not null
      )
  ),
  locked as materialized (
    select x.ctid as row, w.id, w.priority_aging
    from waiting w
    join fairqueue.fq_message x
      on x.ctid = w.row
      and x.id is not distinct from w.id
      and num_nulls(x.lease_id) = 1
    for no key update of x skip locked
  ),
  gone as (
    update fairqueue.fq_message m
    set dequeue_at = fairqueue.fq_position(p_now, m.priority, l.priority_aging::bigint)
    from locked l
    where m.ctid = l.row
    returning m.id, m.channel_id, m.dequeue_at
  )
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, ordering_key)
  select p_queue, w.channel_id, g.dequeue_at, g.id, case when g.id is null then w.ordering_key end
  from waiting w
  left join gone g on g.id = w.id;
  get diagnostics v_told = row_count;
  return v_told > 0;
end
$$;
