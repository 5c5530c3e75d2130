-- fq_period_holders: of each message the one that has its key for a period that is not over, null: none has. With
-- p_replaceable one that nobody holds, and that the message may replace, does not count.
-- Locks: none. Index: fq_key_period_pkey, fq_message_pkey, fq_channel_pkey. Errors: none.
-- Its callers set how its statements are planned: to set it again would take longer than the call.
create function fairqueue.fq_period_holders(
  p_queue text,
  p_channels text[],
  p_keys text[],
  p_unique_fors bigint[],
  p_on_duplicates text[],
  p_replaceable boolean
)
returns bigint[]
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_holders bigint[];
begin
  select array_agg(k.message_id order by u.ord) into v_holders
  from unnest(p_channels, p_keys, p_unique_fors, p_on_duplicates)
    with ordinality u(channel, key, unique_for, on_duplicate, ord)
  left join lateral (
    select x.message_id
    from fairqueue.fq_key_period x
    where x.queue = p_queue
      and x.channel = u.channel
      and x.dedupe_key = u.key
      and u.unique_for is not null
      and (
        x.expires_at > v_now
        or (
          x.expires_at is null
          and exists (
            select
            from fairqueue.fq_message m
            where m.id = x.message_id
          )
        )
      )
      and not (
        p_replaceable
        and coalesce(u.on_duplicate, 'skip') = 'replace'
        and exists (
          select
          from fairqueue.fq_message m
          join fairqueue.fq_channel c on c.id = m.channel_id
          where m.id = x.message_id
            and m.dedupe_key = u.key
            and num_nulls(m.lease_id) = 1
            and c.queue = p_queue
            and c.name = u.channel
        )
      )
    limit 1
  ) k on true;
  return v_holders;
end
$$;
