-- fq_newest_place: where the state row of a channel is, to lock it there (why so: see fq_choose_one).
-- Guarantees: as fq_newest_state. Locks: none. Index: fq_channel_state_newest_ix. Errors: none.
create function fairqueue.fq_newest_place(p_channel_id bigint)
returns table (state_row tid, row_version bigint)
language sql
stable
as $$
  select s.ctid, s.row_version
  from fairqueue.fq_channel_state s
  where s.channel_id = p_channel_id
  order by s.channel_id desc, s.row_version desc
  limit 1
$$;
