-- fq_check_limit_state: refuse a state row of a shared limit that is not there, or that has one, and values out of
-- their bounds. The trigger of fq_limit_state calls it for each row that is inserted.
-- Guarantees: of two transactions that insert a state row of one limit the second is refused, at every isolation level:
-- it waits for the row of the limit, which the first has locked. Above READ COMMITTED it changes that row, since its
-- snapshot would not show what the first has inserted.
-- Locks: the row of fq_limit, for no key update; fq_configure_limit has it already. Index: fq_limit_pkey,
-- fq_limit_state_newest_ix.
-- Errors: 23503 the limit is not there; 23505 it has a state row; 23514 a bad value; 40001 above READ COMMITTED.
create function fairqueue.fq_check_limit_state()
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
    new.row_version >= 0 and new.rate_at between 0 and 253402300799999999 and new.virtual_time >= 0
  ) is false then
    raise exception 'a state row of the limit % has a bad value', left(new.limit_name, 80)
      using errcode = '23514', table = 'fq_limit_state', detail = left(to_jsonb(new)::text, 1000),
        hint = 'counts are 0 or more, times up to the year 9999';
  end if;
  if current_setting('transaction_isolation') = 'read committed' then
    perform
    from fairqueue.fq_limit f
    where f.name = new.limit_name
    for no key update;
  else
    update fairqueue.fq_limit f
    set rate_burst = f.rate_burst
    where f.name = new.limit_name;
  end if;
  if not found then
    raise exception 'there is no limit %', left(new.limit_name, 80)
      using errcode = '23503', table = 'fq_limit_state', hint = 'make it with fq_configure_limit';
  end if;
  -- A new statement, which sees the commit that it waited for.
  perform
  from fairqueue.fq_limit_state s
  where s.limit_name = new.limit_name
  order by s.limit_name desc, s.row_version desc
  limit 1;
  if found then
    raise exception 'the limit % has a state row', left(new.limit_name, 80)
      using errcode = '23505', table = 'fq_limit_state', hint = 'change the row that it has';
  end if;
  return new;
end
$$;
