-- fq_check_channel_state: refuse a state row of a channel that is not there, or that has one. The trigger of
-- fq_channel_state calls it for each row that is inserted.
-- Guarantees: of two transactions that insert a state row of one channel the second is refused, at every isolation
-- level: it waits for the identity row, which the first has locked. Above READ COMMITTED it changes that row, since its
-- snapshot would not show what the first has inserted. An identity row that this transaction has made needs neither:
-- nobody else sees it.
-- Locks: the identity row, for no key update. A new channel's is its transaction's own, so that nobody waits who has
-- not inserted a state row by hand. Index: fq_channel_pkey, fq_channel_state_newest_ix.
-- Errors: 23503 the channel is not there; 23505 it has a state row; 40001 above READ COMMITTED.
create function fairqueue.fq_check_channel_state()
returns trigger
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
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
