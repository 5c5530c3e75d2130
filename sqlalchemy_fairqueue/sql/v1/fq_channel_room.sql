-- fq_channel_room: the state row of a channel, by name, and how many messages the channel still takes (null: any
-- number). If it is missing, it is made as by fq_make_channels, with p_policy.
-- Guarantees: the backlog is what is committed and what this transaction did. The channel is not about to be forgotten.
-- Locks: none, or for a new or marked channel as fq_make_channels. Index: fq_channel_queue_name_key,
-- fq_channel_state_newest_ix, fq_signal_bounded_ix.
-- Errors: 40001 as fq_make_channels, and under SERIALIZABLE for two at one bounded channel.
create function fairqueue.fq_channel_room(
  p_queue text, p_channel text, p_policy jsonb,
  out state fairqueue.fq_channel_state, out room bigint
)
language plpgsql
as $$
declare
  r record;
begin
  loop
    -- One snapshot for the state row and the signals: a signal that is heard meanwhile counts once. Signals up to
    -- heard_id that a slow transaction left count when they are heard: to read there would be to walk over all dead
    -- versions that an old snapshot keeps.
    select (n.*)::fairqueue.fq_channel_state as state,
      case
        when n.max_backlog is not null then
          n.max_backlog - n.backlog - (
            select coalesce(sum(g.added), 0)
            from fairqueue.fq_signal g
            where g.channel_id = n.channel_id
              and g.bounded
              and g.id > n.heard_id
          )
      end as room
    into r
    from fairqueue.fq_find_channel(p_queue, p_channel) c
    cross join lateral fairqueue.fq_newest_state(c.id::bigint) n
    where n.forget_xid is null;
    exit when found;
    perform fairqueue.fq_make_channels(p_queue, array[p_channel]::text[], p_policy);
  end loop;
  state := r.state;
  room := r.room;
end
$$;
