-- fq_begin_periods: write the periods of keys whose messages the caller has just added or replaced, so that it has
-- their keys, in arrays of one length. Messages without a period, or with another outcome, are passed by.
-- Returns false if a period that is not over belongs to another message; then the caller undoes all of it.
-- Guarantees: after true the keys have the periods of the last of their messages, from now on or from their end.
-- Locks: rows of fq_key_period that nobody else writes meanwhile but housekeeping, which waits for none; and messages
-- that the caller has locked. Index: fq_key_period_pkey, fq_key_period_message_ix, fq_message_pkey. Errors: 40001.
create function fairqueue.fq_begin_periods(
  p_queue text, p_channels text[], p_keys text[], p_unique_fors bigint[], p_from_ends boolean[], p_ids bigint[],
  p_outcomes text[]
)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_asked bigint;
  v_written bigint;
begin
  with asked as materialized (
    -- of several under one key the last one rewrote the others
    select distinct on (u.channel collate "C", u.key collate "C")
      u.channel, u.key, u.id, u.unique_for, u.from_end, u.outcome,
      case when not u.from_end then v_now + u.unique_for end as expires_at
    from unnest(p_channels, p_keys, p_unique_fors, p_from_ends, p_ids, p_outcomes)
      with ordinality u(channel, key, unique_for, from_end, id, outcome, ord)
    where u.unique_for is not null
      and u.outcome in ('created', 'replaced')
    order by u.channel collate "C", u.key collate "C", u.ord desc
  ),
  rewritten as (
    update fairqueue.fq_key_period k
    set message_id = a.id,
      unique_for = a.unique_for,
      expires_at = a.expires_at
    from asked a
    where k.queue = p_queue
      and k.channel = a.channel
      and k.dedupe_key = a.key
      and (
        k.message_id = a.id
        or k.expires_at <= v_now
        or (
          k.expires_at is null
          and not exists (
            select
            from fairqueue.fq_message m
            where m.id = k.message_id
          )
        )
      )
    returning k.message_id
  ),
  added as (
    insert into fairqueue.fq_key_period as n (queue, channel, dedupe_key, message_id, unique_for, expires_at)
    select p_queue, a.channel, a.key, a.id, a.unique_for, a.expires_at
    from asked a
    where not exists (
      select
      from fairqueue.fq_key_period k
      where k.queue = p_queue
        and k.channel = a.channel
        and k.dedupe_key = a.key
    )
    on conflict on constraint fq_key_period_pkey do nothing
    returning n.message_id
  ),
  marked as (
    update fairqueue.fq_message m
    set key_outlives = n.outlives
    from (
      select a.id,
        a.from_end
          -- a period of the channel from which it was moved still waits for its end
          or exists (
            select
            from fairqueue.fq_key_period k
            where k.message_id = a.id
              and k.expires_at is null
              and (k.queue, k.channel, k.dedupe_key) <> (p_queue, a.channel, a.key)
          ) as outlives
      from asked a
      where a.from_end
        or a.outcome = 'replaced'
    ) n
    where m.id = n.id
      and coalesce(m.key_outlives, false) <> n.outlives
  )
  select (select count(*) from asked), (select count(*) from rewritten) + (select count(*) from added)
  into v_asked, v_written;
  return v_written = v_asked;
end
$$;
