-- fq_holder: the consumer that has leased a message; null: none has.
-- Guarantees: as the statement that calls it sees it. Locks: none. Index: fq_message_pkey, fq_lease_pkey.
-- Errors: QF007.
create function fairqueue.fq_holder(p_message_id bigint)
returns text
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], c.queue, null::text[])
  from fairqueue.fq_message m
  join fairqueue.fq_channel c on c.id = m.channel_id
  where m.id = p_message_id;
  return (
    select l.consumer
    from fairqueue.fq_message m
    join fairqueue.fq_lease l on l.id = m.lease_id
    where m.id = p_message_id
  );
end
$$;
