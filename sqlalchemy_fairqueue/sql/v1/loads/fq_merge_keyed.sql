-- fq_merge_keyed: add the messages of a bulk load that have a key which is free, of channels that are not bounded, and
-- a signal a channel. p_insert: the statement that adds them, without its last conditions. Returns how many.
-- Locks: keys, in the order (channel, key): waits for a transaction that is adding one.
-- Index: fq_message_dedupe_key. Errors: none.
create function fairqueue.fq_merge_keyed(p_queue text, p_insert text)
returns bigint
language plpgsql
volatile
as $$
declare
  v_schema regnamespace := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_load));
  v_added bigint;
begin
  execute format(
    'with added as ('
    '  %s and s.key is not null order by s.channel, s.key'
    '  on conflict (channel_id, dedupe_key) where dedupe_key is not null do nothing'
    '  returning channel_id, dequeue_at, id'
    '), told as ('
    '  insert into %s.fq_signal (queue, channel_id, dequeue_at, message_id, added)'
    '  select %L, a.channel_id, min(a.dequeue_at), min(a.id), count(*)'
    '  from added a'
    '  group by a.channel_id'
    '  returning added'
    ') select coalesce(sum(t.added), 0) from told t',
    p_insert, v_schema, p_queue
  )
  into v_added;
  return v_added;
end
$$;
