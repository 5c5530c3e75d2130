-- fq_lock_heard: lock the states of channels that signals name, for fq_hear_many. p_channels: the channel of each
-- signal, in order. By channel: states: its row (null: the channel is gone); firsts: which of the signals is its first;
-- counts: how many it has. Channels that somebody has locked are left out.
-- Locks: the newest version of each state row for no key update, skip locked. Index: fq_channel_state_newest_ix; rows
-- by ctid. Errors: none.
create function fairqueue.fq_lock_heard(
  p_channels bigint[], out states tid[], out firsts bigint[], out counts bigint[]
)
language plpgsql
as $$
begin
  with known as materialized (
    select c.id, c.first, c.signals, newest.state_row as row, newest.row_version
    from (
      select u.id, min(u.ord) as first, count(*) as signals
      from unnest(p_channels) with ordinality u(id, ord)
      group by u.id
    ) c
    left join lateral fairqueue.fq_newest_place(c.id) newest on true
  ),
  locked as materialized (
    select s.ctid as row, k.first, k.signals
    from known k
    join fairqueue.fq_channel_state s
      on s.ctid = k.row
      and s.row_version is not distinct from k.row_version
      and s.channel_id is not distinct from k.id
    for no key update of s skip locked
  )
  select array_agg(l.row), array_agg(l.first), array_agg(l.signals) into states, firsts, counts
  from (
    select o.row, o.first, o.signals
    from locked o
    union all
    select null, k.first, k.signals
    from known k
    where num_nulls(k.row) = 1
  ) l;
end
$$;
