-- fq_enqueue_alone: enqueue one message, whatever it needs, with arguments that fq_bad_argument has found good. It asks
-- for no grant.
-- Guarantees: as fq_enqueue. Locks: as fq_enqueue. Index: as fq_channel_room and fq_add_message. Errors: as these.
create function fairqueue.fq_enqueue_alone(
  p_queue text, p_channel text, p_kind text, p_content bytea, p_headers jsonb, p_delay bigint, p_at bigint,
  p_priority integer, p_key text, p_max_attempts integer, p_policy jsonb, p_on_duplicate text, p_notify boolean,
  p_cost integer, p_group_id uuid, p_unique_for bigint, p_from_end boolean, p_now bigint,
  out message_id bigint, out outcome text
)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_channel record;
  v_at bigint;
  v_added record;
begin
  v_channel := fairqueue.fq_channel_room(p_queue, p_channel, p_policy);
  v_at := fairqueue.fq_dequeue_at(p_now, p_delay, p_at, p_priority, v_channel.priority_aging);
  v_added := fairqueue.fq_add_message(
    p_queue, p_channel, v_channel.channel_id, v_channel.room::bigint, v_channel.drop_when_full, p_kind, p_content,
    p_headers, v_at, p_priority, p_key, p_max_attempts, p_on_duplicate, p_cost, p_group_id, p_unique_for, p_from_end,
    p_now, true::boolean, false::boolean
  );
  if v_added.outcome in ('created', 'replaced') then
    insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, bounded)
    values (
      p_queue, v_channel.channel_id, v_at, v_added.message_id, (v_added.outcome = 'created')::integer,
      v_added.outcome = 'created' and v_channel.max_backlog is not null
    );
    if p_notify then
      perform fairqueue.fq_wake(p_queue);
    end if;
  elsif v_added.outcome = 'dropped' then
    insert into fairqueue.fq_signal (queue, channel_id, dropped)
    values (p_queue, v_channel.channel_id, 1);
  end if;
  message_id := v_added.message_id;
  outcome := v_added.outcome;
end
$$;
