-- fq_begin_period: write the period of a key whose message the caller has just added or locked, so that nobody else can
-- have the key: from now on, or with p_from_end from the end of the message, which has key_outlives for it.
-- Returns false if a period that is not over belongs to another message; then nothing has changed.
-- Locks: a row of fq_key_period that nobody else writes meanwhile but housekeeping, which waits for none.
-- Index: fq_key_period_pkey, fq_message_pkey. Errors: 40001.
create function fairqueue.fq_begin_period(
  p_queue text, p_channel text, p_key text, p_message_id bigint, p_unique_for bigint, p_from_end boolean
)
returns boolean
language plpgsql
volatile
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  insert into fairqueue.fq_key_period as k (queue, channel, dedupe_key, message_id, unique_for, expires_at)
  values (
    p_queue, p_channel, p_key, p_message_id, p_unique_for, case when p_from_end is not true then v_now + p_unique_for end
  )
  on conflict on constraint fq_key_period_pkey do update
  set message_id = excluded.message_id,
    unique_for = excluded.unique_for,
    expires_at = excluded.expires_at
  where k.message_id = excluded.message_id
    or k.expires_at <= v_now
    or (
      k.expires_at is null
      and not exists (
        select
        from fairqueue.fq_message m
        where m.id = k.message_id
      )
    );
  return found;
end
$$;
