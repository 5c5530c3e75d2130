-- fq_end_ordering: when a message with an ordering key is deleted before its delivery or after its cancel, or gets
-- another key, or a dead letter that held the key is gone, let the next message of the key go. Triggers of fq_message
-- and fq_dead_letter call it. What ends a delivery calls fq_tell_ordering itself, once for all of its messages.
-- Guarantees, locks, index, errors: as fq_tell_ordering; fq_channel_pkey.
create function fairqueue.fq_end_ordering()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  perform fairqueue.fq_tell_ordering(
    (select c.queue from fairqueue.fq_channel c where c.id = old.channel_id)::text, array[old.channel_id]::bigint[],
    array[old.ordering_key]::text[]
  );
  return null;
end
$$;
