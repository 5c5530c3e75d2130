-- fq_due_groups: up to p_groups groups whose members have all ended, each with the message that follows it: the
-- follow-up for a failure, if there is one and a member failed or was cancelled, else the other one; channel null: none
-- follows. is_new: the channel of that message does not exist.
-- Guarantees: they come in the order in which fq_fold_groups may lock: first messages that wait for nobody, then those
-- with a key or of a new channel; of both, those that have waited in vain come last; all by (queue, channel, key). One
-- query, which the planner inlines. Locks: none.
-- Index: fq_group_due_ix, fq_group_followup_pkey, fq_channel_queue_name_key. Errors: none.
create function fairqueue.fq_due_groups(p_now bigint, p_groups integer)
returns table (
  group_id uuid, queue text, added bigint, done bigint, failed bigint, cancelled bigint, waits integer, channel text,
  kind text, content bytea, headers jsonb, delay bigint, at bigint, priority integer, key text, max_attempts integer,
  policy jsonb, ordering_key text, is_new boolean
)
language sql
stable
as $$
  select g.group_id, g.queue, g.added, g.done, g.failed, g.cancelled, g.waits, w.channel,
    w.kind, w.content, w.headers, w.delay, w.at, w.priority, w.key, w.max_attempts, w.policy, w.ordering_key, w.is_new
  from (
    select d.*
    from fairqueue.fq_group d
    where d.finished_at is null
      and d.due_at <= p_now
    order by d.finished_at, d.due_at
    limit p_groups
  ) g
  left join lateral (
    select f.*,
      not exists (
        select
        from fairqueue.fq_channel c
        where c.queue = g.queue
          and c.name = f.channel
      ) as is_new
    from fairqueue.fq_group_followup f
    where f.group_id = g.group_id
      and (not f.on_failure or g.failed + g.cancelled > 0)
    order by f.on_failure desc
    limit 1
  ) w on true
  order by num_nonnulls(w.key) > 0 or w.is_new, g.waits > 0, g.queue, w.channel, w.key nulls first,
    g.group_id
$$;
