-- fq_check_periods: refuse a period of fq_enqueue_unique that is out of its bounds or has no key; the first such
-- message is named, with the argument and its value.
-- Locks: none. Index: none. Errors: QF001.
-- Its callers set how its statements are planned: to set it again would take longer than the call.
create function fairqueue.fq_check_periods(p_keys text[], p_unique_fors bigint[], p_from_ends boolean[])
returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ordinal bigint;
  v_argument text;
  v_value text;
begin
  select u.ord, bad.argument, case when bad.argument = 'unique_for' then u.unique_for::text else 'null' end
  into v_ordinal, v_argument, v_value
  from unnest(p_keys, p_unique_fors, p_from_ends) with ordinality u(key, unique_for, from_end, ord)
  cross join lateral (
    select case
      when u.unique_for not between 1 and 3153600000000000 then 'unique_for'
      when num_nonnulls(u.unique_for) = 1 and num_nulls(u.key) = 1 then 'key'
      when num_nonnulls(u.unique_for) = 1 and num_nulls(u.from_end) = 1 then 'from_end'
    end as argument
  ) bad
  where bad.argument is not null
  order by u.ord
  limit 1;
  if found then
    raise exception 'message % of fq_enqueue_unique has a bad value: % is %', v_ordinal, v_argument, v_value
      using errcode = 'QF001',
        hint = 'give a period of 1 microsecond to 100 years with a key, and whether it counts from the end';
  end if;
end
$$;
