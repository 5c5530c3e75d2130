-- fq_check_message_grant: refuse the caller, as fq_check_grant does, unless one of p_kinds is granted for the queue and
-- for the channels of those of the messages that are in it.
-- Guarantees: as fq_check_grant. Locks: none. Index: fq_message_pkey, fq_channel_pkey. Errors: QF007.
create function fairqueue.fq_check_message_grant(p_kinds text[], p_queue text, p_ids bigint[])
returns void
language plpgsql
as $$
begin
  if pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    return;
  end if;
  perform fairqueue.fq_check_grant(
    p_kinds, p_queue,
    array(
      select c.name
      from fairqueue.fq_message m
      cross join lateral (
        select x.name
        from fairqueue.fq_channel x
        where x.id = m.channel_id
          and x.queue = p_queue
        limit 1
      ) c
      where m.id = any (p_ids)
    )::text[]
  );
end
$$;
