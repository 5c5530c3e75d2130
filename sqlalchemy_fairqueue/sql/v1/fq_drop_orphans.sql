-- fq_drop_orphans: delete those of some signals whose channel is not there: nobody can apply them, and they would wake
-- every dequeue. p_channels: the channels of the signals p_rows with p_ids. Returns how many.
-- Cost: one version of each channel's state, the newest. (An exists would drop the order, and read all dead versions.)
-- Locks: the signals, for update, skip locked. Index: fq_channel_state_newest_ix; signals by ctid. Errors: none.
-- Its callers set how its statements are planned: to set it again would take longer than the call.
create function fairqueue.fq_drop_orphans(p_rows tid[], p_ids bigint[], p_channels bigint[])
returns integer
language plpgsql
volatile
as $$
declare
  v_dropped integer;
begin
  with orphans as materialized (
    select g.ctid as row
    from unnest(p_rows, p_ids, p_channels) u(row, id, channel_id)
    join fairqueue.fq_signal g on g.ctid = u.row and g.id is not distinct from u.id
    where (
        select o.channel_id
        from fairqueue.fq_channel_state o
        where o.channel_id = u.channel_id
        order by o.channel_id desc, o.row_version desc
        limit 1
      ) is null
    for update of g skip locked
  )
  delete from fairqueue.fq_signal g
  using orphans o
  where g.ctid = o.row;
  get diagnostics v_dropped = row_count;
  return v_dropped;
end
$$;
