-- fq_check_dequeue: refuse a dequeue with a bad argument, by a role that has no grant for the queue, or in another
-- transaction than a READ COMMITTED one. Returns the time of the call.
-- Locks: none. Index: fq_grant_pkey. Errors: QF001 bad argument, QF003 wrong isolation level, QF007.
create function fairqueue.fq_check_dequeue(
  p_queue text, p_limit integer, p_lease bigint, p_consumer text, p_max_bytes bigint
)
returns bigint
language plpgsql
as $$
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  if p_queue is null
    or p_limit is null or p_limit not between 1 and 100000
    or p_lease is null or p_lease not between 1 and 31536000000000
    or p_consumer is null or octet_length(p_consumer) > 512
    or p_max_bytes < 1
  then
    raise exception 'fq_dequeue has queue %, limit %, lease % microseconds, consumer %, at most % bytes',
        left(p_queue, 80), p_limit, p_lease, left(p_consumer, 80), p_max_bytes
      using errcode = 'QF001',
        hint = 'ask for 1 to 100000 messages under a lease of 1 microsecond to 365 days, with the name of a consumer '
          'of at most 512 bytes, and for at least 1 byte or any number (null)';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_dequeue runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction of its own';
  end if;
  return fairqueue.fq_now();
end
$$;
