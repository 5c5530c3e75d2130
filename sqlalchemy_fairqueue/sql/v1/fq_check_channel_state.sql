-- fq_check_channel_state: refuse a state row of a channel that is not there, or that has one, and values out of their
-- bounds. The trigger of fq_channel_state calls it for each row that is inserted. A constraint would be read anew by
-- each update of the dispatcher.
-- Guarantees: of two transactions that insert a state row of one channel the second is refused, at every isolation
-- level: it waits for the identity row, which the first has locked. Above READ COMMITTED it changes that row, since its
-- snapshot would not show what the first has inserted. An identity row that this transaction has made needs neither:
-- nobody else sees it.
-- Locks: the identity row, for no key update. A new channel's is its transaction's own, so that nobody waits who has
-- not inserted a state row by hand. Index: fq_channel_pkey, fq_channel_state_newest_ix.
-- Errors: 23503 the channel is not there; 23505 it has a state row; 23514 a bad value; 40001 above READ COMMITTED.
create function fairqueue.fq_check_channel_state()
returns trigger
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  c_last constant bigint := 253402300799999999;
  c_year constant bigint := 31536000000000;
begin
  if (
    new.row_version >= 0 and new.current_concurrency >= 0 and new.backlog >= 0 and new.dropped >= 0
    and new.credit >= 0 and new.heard_id >= 0 and new.weight between 1 and 10000 and new.max_concurrency >= 1
    and new.max_backlog >= 1 and new.rate_interval between 0 and c_year and new.rate_burst between 1 and 1000000
    and new.priority_aging between 1 and c_year and new.rate_at between 0 and c_last
    and new.last_dequeue_at between 0 and c_last and new.used_at between 0 and c_last
    and new.paused_at between 0 and c_last and new.head_dequeue_at <= c_last and new.next_dequeue_at <= c_last
  ) is false then
    raise exception 'a state row of channel % has a bad value', new.channel_id
      using errcode = '23514', table = 'fq_channel_state', detail = to_jsonb(new)::text,
        hint = 'counts are 0 or more, limits 1 or more, a weight 1 to 10000, times up to the year 9999';
  end if;
  -- (A row of a subtransaction goes the long way.)
  perform
  from fairqueue.fq_channel c
  where c.id = new.channel_id
    and c.queue = new.queue
    and c.xmin = pg_current_xact_id()::xid
    and not exists (
      select
      from fairqueue.fq_channel_state s
      where s.channel_id = new.channel_id
    );
  if found then
    return new;
  end if;
  if current_setting('transaction_isolation') = 'read committed' then
    perform
    from fairqueue.fq_channel c
    where c.id = new.channel_id
      and c.queue = new.queue
    for no key update;
  else
    update fairqueue.fq_channel c
    set name = c.name
    where c.id = new.channel_id
      and c.queue = new.queue;
  end if;
  if not found then
    raise exception 'queue % has no channel %', left(new.queue, 80), new.channel_id
      using errcode = '23503', table = 'fq_channel_state', hint = 'insert its row into fq_channel first';
  end if;
  -- A new statement, which sees the commit that it waited for.
  perform
  from fairqueue.fq_channel_state s
  where s.channel_id = new.channel_id
  limit 1;
  if found then
    raise exception 'channel % of queue % has a state row', new.channel_id, left(new.queue, 80)
      using errcode = '23505', table = 'fq_channel_state', hint = 'change the row that it has';
  end if;
  return new;
end
$$;
