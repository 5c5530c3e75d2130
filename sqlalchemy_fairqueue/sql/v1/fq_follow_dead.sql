-- fq_follow_dead: let a message follow each dead letter of some kinds, see fq_bury_messages. Kinds that are followed
-- already stay so; fq_set_queue takes them away.
-- Guarantees: holds for messages that die after the commit. A call that adds no kind writes nothing.
-- Locks: the queue's row; waits for a configuration of the same queue. Index: fq_queue_pkey. Errors: QF001 bad name;
-- 40001; QF007.
create function fairqueue.fq_follow_dead(p_queue text, p_kinds text[])
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue,kind}'::text[], (p_queue || p_kinds)::text[]);
  if exists (select from fairqueue.fq_queue q where q.name = p_queue and q.on_dead_kinds @> p_kinds) then
    return;
  end if;
  insert into fairqueue.fq_queue as q (name, on_dead_kinds)
  values (p_queue, p_kinds)
  on conflict (name) do update
  set on_dead_kinds = array(
    select u.kind
    from unnest(q.on_dead_kinds || excluded.on_dead_kinds) u(kind)
    group by u.kind
    order by u.kind
  );
end
$$;
