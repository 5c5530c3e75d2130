-- fq_newest_state: the state row of a channel; no row: it has none.
-- Guarantees: one query, which the planner inlines; the newest version is met first, however many dead ones an old
-- snapshot keeps. Locks: none. Index: fq_channel_state_newest_ix. Errors: none.
create function fairqueue.fq_newest_state(p_channel_id bigint)
returns setof fairqueue.fq_channel_state
language sql
stable
as $$
  select s.*
  from fairqueue.fq_channel_state s
  where s.channel_id = p_channel_id
  order by s.channel_id desc, s.row_version desc
  limit 1
$$;
