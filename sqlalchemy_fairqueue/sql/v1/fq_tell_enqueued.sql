-- fq_tell_enqueued: leave the signals of messages that were enqueued one by one: of those that were created or
-- replaced, and of those that were dropped. Each message has its channel, its time, its id, its outcome, and whether
-- its channel is bounded.
-- Guarantees: one signal a channel. p_notify: wakes waiting consumers, if one can have a message.
-- Locks: none. Index: none. Errors: none.
-- Its callers set how its statements are planned: to set it again would take longer than the call.
create function fairqueue.fq_tell_enqueued(
  p_queue text,
  p_channel_ids bigint[],
  p_ats bigint[],
  p_ids bigint[],
  p_outcomes text[],
  p_bounded boolean[],
  p_notify boolean
)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, dropped, bounded)
  select p_queue, t.channel_id, t.least[1], t.least[2], t.added, t.dropped, t.added > 0 and t.bounded
  from (
    select u.channel_id, count(*) filter (where u.outcome = 'created') as added,
      count(*) filter (where u.outcome = 'dropped') as dropped, bool_or(u.bounded) as bounded,
      min(array[u.dequeue_at, u.id]) filter (where u.outcome in ('created', 'replaced')) as least
    from unnest(p_channel_ids, p_ats, p_ids, p_outcomes, p_bounded) u(channel_id, dequeue_at, id, outcome, bounded)
    where u.outcome in ('created', 'replaced', 'dropped')
    group by u.channel_id
  ) t;
  if p_notify and p_outcomes && array['created', 'replaced'] then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
