-- fq_max_backlog: how many undelivered messages a channel may have; null: no bound, or there is no such channel.
-- Guarantees: the policy that was committed last. Locks: none. Index: fq_channel_queue_name_key,
-- fq_channel_state_newest_ix. Errors: QF007.
create function fairqueue.fq_max_backlog(p_queue text, p_channel text)
returns integer
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['producer']::text[], p_queue, array[p_channel]::text[]);
  return (
    select s.max_backlog
    from fairqueue.fq_find_channel(p_queue, p_channel) c
    cross join lateral fairqueue.fq_newest_state(c.id::bigint) s
  );
end
$$;
