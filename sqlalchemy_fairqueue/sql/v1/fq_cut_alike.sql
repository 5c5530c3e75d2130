-- fq_cut_alike: lock the messages that follow one that is out, for its batch: of its ordering key the next ones, or
-- without one the first due ones of its channel, from the head p_head_at, p_head_id on. Up to p_limit of a kind, which
-- cost at most p_max_cost together (null: any), with at most p_max_bytes of contents and headers (null: any);
-- p_estimate: as fq_cut_batch. Returns their rows; the other values as fq_cut_batch returns them by channel, for one
-- channel.
-- Guarantees: the batch ends before one that has another kind, was tried before, is locked by somebody, waits for its
-- time, or, without p_ordering_key, has one. It sees messages whose signals were heard before the caller locked the
-- channel. Locks: messages, for no key update, skip locked. Index: fq_message_ordering_ix or fq_message_ready_ix; that
-- of fq_find_heads; rows by ctid. Errors: none.
create function fairqueue.fq_cut_alike(
  p_channel_id bigint, p_ordering_key text, p_kind text, p_head_at bigint, p_head_id bigint, p_limit integer,
  p_max_cost bigint, p_max_bytes bigint, p_estimate integer, p_now bigint,
  out rows tid[], out givers integer[], out gots integer[], out charges bigint[], out next_heads_at bigint[],
  out next_head_ids bigint[]
)
language plpgsql
as $$
declare
  v_ids bigint[];
begin
  with read as materialized (
    select m.row, m.id, m.place, greatest(0, coalesce(m.cost, p_estimate)) as charge,
      bool_and(
        m.kind = p_kind and m.attempts = 0 and (m.is_held or m.dequeue_at <= p_now)
        and m.ordering_key is not distinct from p_ordering_key
      ) over line as is_alike,
      sum(coalesce(m.cost, 1)) over line as cost,
      sum(case when p_max_bytes is not null then fairqueue.fq_message_size(m.content::bytea, m.headers::jsonb) end)
        over line as bytes
    from (
      (
        select x.ctid as row, x.*, x.dequeue_at = 9223372036854775807 as is_held,
          row_number() over (order by x.channel_id, x.ordering_key, x.lease_id, (x.deliveries = 0), x.id) as place
        from fairqueue.fq_message x
        where x.channel_id = p_channel_id
          and x.ordering_key = p_ordering_key
          and x.lease_id is null
          and not exists (
            select
            from fairqueue.fq_dead_letter d
            where d.channel_id = p_channel_id
              and d.ordering_key = p_ordering_key
              and d.holds
          )
        order by x.channel_id, x.ordering_key, x.lease_id, (x.deliveries = 0), x.id
        limit p_limit
      )
      union all
      (
        select x.ctid, x.*, false, row_number() over (order by x.channel_id, x.dequeue_at, x.id)
        from fairqueue.fq_message x
        where p_ordering_key is null
          and x.channel_id = p_channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) >= (p_head_at, p_head_id)
          and x.dequeue_at <= p_now
        order by x.channel_id, x.dequeue_at, x.id
        limit p_limit
      )
    ) m
    window line as (order by m.place)
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
      and (f.bytes <= p_max_bytes) is not false
    for no key update of x skip locked
  )
  select array_agg(t.row), array_agg(t.id), array[count(*)], array[sum(t.charge)]
  into rows, v_ids, gots, charges
  from (
    select f.row, f.id, f.charge, bool_and(k.id is not null) over (order by f.place) as is_whole
    from read f
    left join locked k on k.id = f.id
  ) t
  where t.is_whole;
  givers := array[1];
  select h.heads_at, h.head_ids into next_heads_at, next_head_ids
  from fairqueue.fq_find_heads(
    array[p_channel_id]::bigint[], array[p_head_at]::bigint[], array[p_head_id]::bigint[],
    coalesce(v_ids, '{}')::bigint[]
  ) h;
end
$$;
