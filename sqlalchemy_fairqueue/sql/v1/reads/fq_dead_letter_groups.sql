-- fq_dead_letter_groups: the newest p_limit dead letters of a queue, grouped by kind, reason and error, the largest
-- group first. error: the last line of the error, with numbers replaced by #, 200 characters at most. message_ids: the
-- newest p_ids of the group.
-- Guarantees: one snapshot. Dead letters whose texts cannot be read are in a group with a null kind.
-- Cost: the dead letters that are read, without their contents. Locks: none. Index: fq_dead_letter_died_ix,
-- fq_dead_letter_pkey. Errors: QF001 bad limit; QF007; none of a row's.
create function fairqueue.fq_dead_letter_groups(p_queue text, p_limit integer, p_ids integer)
returns table (
  kind text, reason text, error text, letters bigint, channels bigint, first_died_at bigint, last_died_at bigint,
  message_ids bigint[]
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_dead_letter_groups has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  perform fairqueue.fq_check_number('fq_dead_letter_groups has ids'::text, p_ids::bigint, 0::bigint, null::bigint);
  return query
  select u.kind, u.reason, u.error, count(*), count(distinct u.channel_id), min(u.died_at), max(u.died_at),
    (array_agg(u.message_id order by u.died_at desc))[:p_ids]
  from (
    select d.message_id, d.channel_id, d.died_at, r.kind, left(r.reason, 200) as reason,
      regexp_replace(
        left(split_part(rtrim(right(r.error, 4000), E' \n\r\t'), E'\n', -1), 200), '\d+', '#', 'g'
      ) as error
    from (
      select x.message_id, x.channel_id, x.died_at
      from fairqueue.fq_dead_letter x
      where x.queue = p_queue
      order by x.queue desc, x.died_at desc
      limit p_limit
    ) d
    cross join lateral fairqueue.fq_read_dead_letter(d.message_id::bigint, false::boolean) r
  ) u
  group by u.kind, u.reason, u.error
  order by count(*) desc, max(u.died_at) desc;
end
$$;
