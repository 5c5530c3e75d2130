-- fq_dead_letter_groups: the newest dead letters of a queue, up to p_limit, by their kind, reason and error, the
-- largest group first.
-- Guarantees: one snapshot. error: the last line of the error, numbers replaced by #, 200 characters at most.
-- message_ids: the newest letters of the group, up to p_ids of them. A letter whose texts cannot be read is in the
-- group with a null kind.
-- Cost: the letters that are read, without their contents. Locks: none. Index: fq_dead_letter_died_ix,
-- fq_dead_letter_pkey. Errors: QF001 bad limit; QF007; none of a row's.
create function fairqueue.fq_dead_letter_groups(p_queue text, p_limit integer, p_ids integer)
returns table (
  kind text,
  reason text,
  error text,
  letters bigint,
  channels bigint,
  first_died_at bigint,
  last_died_at bigint,
  message_ids bigint[]
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  r record;
  v_ids bigint[] := '{}';
  v_channels bigint[] := '{}';
  v_times bigint[] := '{}';
  v_kinds text[] := '{}';
  v_reasons text[] := '{}';
  v_errors text[] := '{}';
  v_kind text;
  v_reason text;
  v_error text;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if p_limit is null or p_limit < 1 or p_ids is null or p_ids < 0 then
    raise exception 'fq_dead_letter_groups has limit %, ids %', p_limit, p_ids
      using errcode = 'QF001', hint = 'ask for 1 dead letter or more, with 0 ids or more of each group';
  end if;
  begin
    -- All of them in one statement, as long as all can be read.
    return query
    select u.kind, u.reason, u.error, count(*), count(distinct u.channel_id), min(u.died_at), max(u.died_at),
      (array_agg(u.message_id order by u.died_at desc))[:p_ids]
    from (
      select d.message_id, d.channel_id, d.died_at, d.kind || '' as kind, left(d.reason, 200) as reason,
        regexp_replace(
          left(split_part(rtrim(right(d.error, 4000), E' \n\r\t'), E'\n', -1), 200), '\d+', '#', 'g'
        ) as error
      from fairqueue.fq_dead_letter d
      where d.queue = p_queue
      order by d.queue desc, d.died_at desc
      limit p_limit
    ) u
    group by u.kind, u.reason, u.error
    order by count(*) desc, max(u.died_at) desc;
    return;
  exception
    when data_exception or program_limit_exceeded or internal_error then
      null;
  end;
  for r in
    select d.message_id, d.channel_id, d.died_at
    from fairqueue.fq_dead_letter d
    where d.queue = p_queue
    order by d.queue desc, d.died_at desc
    limit p_limit
  loop
    begin
      select d.kind || '', left(d.reason, 200),
        regexp_replace(left(split_part(rtrim(right(d.error, 4000), E' \n\r\t'), E'\n', -1), 200), '\d+', '#', 'g')
      into v_kind, v_reason, v_error
      from fairqueue.fq_dead_letter d
      where d.message_id = r.message_id;
    exception
      when data_exception or program_limit_exceeded or internal_error then
        v_kind := null;
        v_reason := null;
        v_error := null;
    end;
    v_ids := v_ids || r.message_id;
    v_channels := v_channels || r.channel_id;
    v_times := v_times || r.died_at;
    v_kinds := v_kinds || v_kind;
    v_reasons := v_reasons || v_reason;
    v_errors := v_errors || v_error;
  end loop;
  return query
  select u.kind, u.reason, u.error, count(*), count(distinct u.channel_id), min(u.died_at), max(u.died_at),
    (array_agg(u.message_id order by u.ordinal))[:p_ids]
  from unnest(v_ids, v_channels, v_times, v_kinds, v_reasons, v_errors)
    with ordinality u(message_id, channel_id, died_at, kind, reason, error, ordinal)
  group by u.kind, u.reason, u.error
  order by count(*) desc, max(u.died_at) desc;
end
$$;
