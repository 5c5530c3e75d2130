-- fq_check_limit_share: refuse a share of a queue in a shared limit that is not there, or of which the queue has a
-- share already, and values out of their bounds. The trigger of fq_limit_share calls it for each row that is inserted.
-- Guarantees: of two transactions that insert a share of one queue the second is refused: it waits for the row of the
-- queue, which the first has locked. A queue without a row is taken: a restore of data fills fq_queue later.
-- Locks: the row of fq_queue, for no key update, then that of fq_limit, for key share; fq_limit_queue has both already.
-- Index: fq_queue_pkey, fq_limit_pkey, fq_limit_share_newest_ix.
-- Errors: 23503 the limit is not there; 23505 the queue has a share of the limit; 23514 a bad value; QF003
-- above READ COMMITTED, as fq_limit_queue.
create function fairqueue.fq_check_limit_share()
returns trigger
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  if (
    new.row_version >= 0 and new.tag >= 0 and new.contends_until between 0 and 253402300799999999
  ) is false then
    raise exception 'a share of queue % in the limit % has a bad value', left(new.queue, 80), left(new.limit_name, 80)
      using errcode = '23514', table = 'fq_limit_share', detail = left(to_jsonb(new)::text, 1000),
        hint = 'counts are 0 or more, times up to the year 9999';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a share of queue % comes in a % transaction', left(new.queue, 80),
        current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'insert it in a READ COMMITTED transaction';
  end if;
  perform
  from fairqueue.fq_queue q
  where q.name = new.queue
  for no key update;
  perform
  from fairqueue.fq_limit f
  where f.name = new.limit_name
  for key share;
  if not found then
    raise exception 'there is no limit %', left(new.limit_name, 80)
      using errcode = '23503', table = 'fq_limit_share', hint = 'make it with fq_configure_limit';
  end if;
  -- A new statement, which sees the commit that it waited for.
  perform
  from fairqueue.fq_limit_share s
  where s.limit_name = new.limit_name
    and s.queue = new.queue
  order by s.limit_name desc, s.queue desc, s.row_version desc
  limit 1;
  if found then
    raise exception 'queue % has a share of the limit %', left(new.queue, 80), left(new.limit_name, 80)
      using errcode = '23505', table = 'fq_limit_share', hint = 'change the row that it has';
  end if;
  return new;
end
$$;
