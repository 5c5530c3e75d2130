-- fq_check_periods: refuse a period of fq_enqueue_unique that is out of its bounds or has no key; the first such
-- message is named, with its values.
-- Locks: none. Index: none. Errors: QF001.
-- Its callers set how its statements are planned: to set it again would take longer than the call.
create function fairqueue.fq_check_periods(p_keys text[], p_unique_fors bigint[], p_from_ends boolean[])
returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_bad integer;
begin
  select u.ord into v_bad
  from unnest(p_keys, p_unique_fors, p_from_ends) with ordinality u(key, unique_for, from_end, ord)
  where u.unique_for not between 1 and 3153600000000000
    or (u.unique_for is not null and num_nulls(u.key, u.from_end) > 0)
  order by u.ord
  limit 1;
  if found then
    raise exception 'message % of fq_enqueue_unique has a bad period', v_bad
      using errcode = 'QF001',
        detail = format(
          'key %L period %s from its end %s', left(p_keys[v_bad], 80), p_unique_fors[v_bad],
          coalesce(p_from_ends[v_bad]::text, 'null')
        ),
        hint = 'give a period of 1 microsecond to 100 years with a key, and whether it counts from the end';
  end if;
end
$$;
