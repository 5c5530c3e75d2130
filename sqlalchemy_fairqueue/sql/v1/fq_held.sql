-- fq_held: the tokens of the messages under a lease, in the order of their ids; row_id: the place of the message's row.
-- Guarantees: as the statement that calls it sees them. Locks: none. Index: fq_message_lease_ix. Errors: QF007.
create function fairqueue.fq_held(p_lease_id bigint)
returns table (message_id bigint, row_id tid, deliveries integer)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], l.queue, null::text[])
  from fairqueue.fq_lease l
  where l.id = p_lease_id;
  return query
  select m.id, m.ctid, m.deliveries
  from fairqueue.fq_message m
  where m.lease_id = p_lease_id
  order by m.id + 0;
end
$$;
