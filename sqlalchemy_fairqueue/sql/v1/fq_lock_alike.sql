-- fq_lock_alike: lock the first due messages of a channel, from its head on: up to p_limit of a kind, which cost at
-- most p_max_cost together (null: any). Returns how many.
-- Guarantees: it stops before the first message that has an ordering key or another kind, was tried before, or is
-- locked by somebody. It sees messages whose signals were heard before the caller locked the channel.
-- Locks: messages, for no key update, skip locked. Index: fq_message_ready_ix; rows by ctid. Errors: none.
create function fairqueue.fq_lock_alike(
  p_channel_id bigint, p_kind text, p_head_at bigint, p_head_id bigint, p_limit integer, p_max_cost bigint,
  p_now bigint
)
returns integer
language plpgsql
as $$
declare
  v_count integer;
begin
  with read as materialized (
    select m.row, m.id, m.dequeue_at,
      bool_and(m.kind = p_kind and m.attempts = 0 and m.ordering_key is null) over line as is_alike,
      sum(coalesce(m.cost, 1)) over line as cost
    from (
      select x.ctid as row, x.*
      from fairqueue.fq_message x
      where x.channel_id = p_channel_id
        and x.lease_id is null
        and (x.dequeue_at, x.id) >= (p_head_at, p_head_id)
        and x.dequeue_at <= p_now
      order by x.channel_id, x.dequeue_at, x.id
      limit p_limit
    ) m
    window line as (order by m.dequeue_at, m.id)
  ),
  locked as materialized (
    select x.id
    from read f
    join fairqueue.fq_message x
      on x.ctid = f.row
      and x.id is not distinct from f.id
      and num_nulls(x.lease_id) = 1
    where f.is_alike
      and (f.cost <= p_max_cost) is not false
    for no key update of x skip locked
  )
  select count(*) filter (where t.is_whole) into v_count
  from (
    select bool_and(k.id is not null) over (order by f.dequeue_at, f.id) as is_whole
    from read f
    left join locked k on k.id = f.id
  ) t;
  return v_count;
end
$$;
