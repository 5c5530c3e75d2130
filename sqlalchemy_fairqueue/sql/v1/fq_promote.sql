-- fq_promote: move up to p_limit messages of a queue that have a priority and came due by p_until to the position of
-- their priority.
-- Guarantees: a message whose due time changed meanwhile stays where it is. returned_at becomes the time when the
-- message came due: since then it is ready. One signal a channel names the first of its messages. A message that
-- somebody else has locked is left for the next call.
-- Locks: promotions for update and messages for no key update, all skip locked: it waits for none.
-- Index: fq_promotion_due_ix, fq_message_pkey, fq_channel_state_newest_ix. Errors: none.
create function fairqueue.fq_promote(p_queue text, p_limit integer, p_until bigint)
returns void
language plpgsql
as $$
declare
  v_rows tid[];
  v_ids bigint[];
  v_dues bigint[];
  v_messages tid[];
  v_locked bigint[];
  v_locked_dues bigint[];
begin
  select array_agg(l.row), array_agg(l.message_id), array_agg(l.due_at) into v_rows, v_ids, v_dues
  from (
    select g.ctid as row, g.message_id, g.due_at
    from fairqueue.fq_promotion g
    where g.queue = p_queue
      and g.due_at <= p_until
    order by g.queue, g.due_at, g.message_id
    limit p_limit
    for update skip locked
  ) l;
  select array_agg(m.row), array_agg(m.id), array_agg(u.due_at) into v_messages, v_locked, v_locked_dues
  from unnest(v_ids, v_dues) u(id, due_at)
  cross join lateral (
    select x.ctid as row, x.id
    from fairqueue.fq_message x
    where x.id = u.id
    for no key update skip locked
  ) m;

  -- A new statement, whose snapshot is younger than the locks.
  with promoted as (
    update fairqueue.fq_message m
    set dequeue_at = (
        select p.dequeue_at
        from fairqueue.fq_position_in(m.channel_id, m.dequeue_at, m.priority) p
      ),
      returned_at = m.dequeue_at
    from unnest(v_messages, v_locked_dues) u(row, due_at)
    where m.ctid = u.row
      and m.dequeue_at = u.due_at
      and m.priority is not null
    returning m.channel_id, m.dequeue_at, m.id, m.lease_id
  )
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
  select p_queue, t.channel_id, t.least[1], t.least[2]
  from (
    select p.channel_id, min(array[p.dequeue_at, p.id]) as least
    from promoted p
    where p.lease_id is null
    group by p.channel_id
  ) t;
  delete from fairqueue.fq_promotion g
  using unnest(v_rows, v_ids) u(row, id)
  where g.ctid = u.row
    and (
      u.id = any (v_locked)
      or not exists (
        select
        from fairqueue.fq_message m
        where m.id = u.id
      )
    );
end
$$;
