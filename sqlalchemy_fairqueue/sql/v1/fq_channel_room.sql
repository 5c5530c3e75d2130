-- fq_channel_room: how many messages a bounded channel still takes (null: any number), with max_backlog,
-- drop_when_full and priority_aging of its policy.
-- Guarantees: the backlog is what is committed and what this transaction did.
-- Locks: none. Index: fq_channel_state_newest_ix, fq_signal_bounded_ix. Errors: 40001 under SERIALIZABLE for two at one
-- bounded channel.
create function fairqueue.fq_channel_room(
  p_channel_id bigint,
  out max_backlog integer,
  out drop_when_full boolean,
  out priority_aging bigint,
  out room bigint
)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
begin
  -- One snapshot for both: a signal that is heard meanwhile is counted once, in the one or in the other.
  -- Those below the last one heard, which a slow transaction left, count when they are heard: to read there
  -- would be to walk over all that an old snapshot keeps.
  select n.max_backlog, n.drop_when_full, n.priority_aging,
    case
      when n.max_backlog is not null then
        n.max_backlog - n.backlog - (
          select coalesce(sum(g.added), 0)
          from fairqueue.fq_signal g
          where g.channel_id = p_channel_id
            and g.bounded
            and g.id > n.heard_id
        )
    end
  into max_backlog, drop_when_full, priority_aging, room
  from fairqueue.fq_channel_state n
  where n.channel_id = p_channel_id
  order by n.channel_id desc, n.row_version desc
  limit 1;
end
$$;
