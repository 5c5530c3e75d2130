-- fq_check_channel_state: refuse state rows of a channel that is not there, or that has one, and values out of their
-- bounds. The trigger of fq_channel_state calls it once for all rows that a statement has inserted. A constraint would
-- be read anew by each update of the dispatcher.
-- Guarantees: of two transactions that insert a state row of one channel the second is refused, at every isolation
-- level: it waits for the identity row, which the first has locked. Above READ COMMITTED it changes that row, since its
-- snapshot would not show what the first has inserted. An identity row that this transaction has made needs neither:
-- nobody else sees it.
-- Locks: identity rows, for no key update, in the order of their ids. A new channel's is its transaction's own, so that
-- nobody waits who has not inserted a state row by hand. Index: fq_channel_pkey, fq_channel_state_newest_ix.
-- Errors: 23503 the channel is not there; 23505 it has a state row; 23514 a bad value; 40001 above READ COMMITTED.
create function fairqueue.fq_check_channel_state()
returns trigger
language plpgsql
volatile
as $$
declare
  c_last constant bigint := 253402300799999999;
  c_year constant bigint := 31536000000000;
  v_bad record;
begin
  select m.* into v_bad
  from made m
  where (
      m.row_version >= 0 and m.current_concurrency >= 0 and m.backlog >= 0 and m.dropped >= 0
      and m.heard_id >= 0 and m.weight between 1 and 10000 and m.max_concurrency >= 1
      and m.max_backlog >= 1 and m.rate_interval between 0 and c_year and m.rate_burst between 1 and 1000000
      and m.priority_aging between 1 and c_year and m.rate_at between 0 and c_last
      and m.last_dequeue_at between 0 and c_last and m.used_at between 0 and c_last
      and m.paused_at between 0 and c_last and m.head_dequeue_at <= c_last and m.next_dequeue_at <= c_last
    ) is false
  limit 1;
  if found then
    raise exception 'a state row of channel % has a bad value', v_bad.channel_id
      using errcode = '23514', table = 'fq_channel_state', detail = to_jsonb(v_bad)::text,
        hint = 'counts are 0 or more, limits 1 or more, a weight 1 to 10000, times up to the year 9999';
  end if;
  -- Each channel is found by its id, whatever the planner thinks of the index by queue. (A row of a subtransaction goes
  -- the long way.)
  perform
  from made m
  where not exists (
      select
      from (
        select c.queue, c.xmin
        from fairqueue.fq_channel c
        where c.id = m.channel_id
        offset 0
      ) c
      where c.queue = m.queue
        and c.xmin = pg_current_xact_id()::xid
    )
    or exists (
      select
      from fairqueue.fq_channel_state s
      where s.channel_id = m.channel_id
      offset 1
    )
  limit 1;
  if not found then
    return null;
  end if;
  if current_setting('transaction_isolation') = 'read committed' then
    perform
    from fairqueue.fq_channel c
    where c.id = any (array(select m.channel_id from made m))
    order by c.id
    for no key update;
  else
    update fairqueue.fq_channel c
    set name = c.name
    where c.id = any (array(select m.channel_id from made m));
  end if;
  -- New statements, which see the commit that they waited for.
  select m.channel_id, left(m.queue, 80) as queue into v_bad
  from made m
  where not exists (
      select
      from (
        select c.queue
        from fairqueue.fq_channel c
        where c.id = m.channel_id
        offset 0
      ) c
      where c.queue = m.queue
    )
  limit 1;
  if found then
    raise exception 'queue % has no channel %', v_bad.queue, v_bad.channel_id
      using errcode = '23503', table = 'fq_channel_state', hint = 'insert its row into fq_channel first';
  end if;
  select m.channel_id, left(m.queue, 80) as queue into v_bad
  from made m
  where exists (
      select
      from fairqueue.fq_channel_state s
      where s.channel_id = m.channel_id
      offset 1
    )
  limit 1;
  if found then
    raise exception 'channel % of queue % has a state row', v_bad.channel_id, v_bad.queue
      using errcode = '23505', table = 'fq_channel_state', hint = 'change the row that it has';
  end if;
  return null;
end
$$;
