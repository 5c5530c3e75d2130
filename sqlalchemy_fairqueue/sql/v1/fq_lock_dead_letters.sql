-- fq_lock_dead_letters: lock dead letters of a queue, for fq_redrive and fq_purge_dead: those of p_ids or, if that is
-- null, the oldest p_limit (null: all); only those of a channel, of a kind, with a key or an ordering key, dead before
-- p_before (microseconds since the epoch). Null restricts nothing. Returns their ids, the oldest death first; without
-- p_ids those whose key another message has come last.
-- Locks: dead letters: those of p_ids in the order of their ids, which waits for a redrive or purge of the same; others
-- skip locked. Index: fq_dead_letter_pkey or fq_dead_letter_died_ix, fq_message_key. Errors: 40001.
create function fairqueue.fq_lock_dead_letters(
  p_queue text, p_ids bigint[], p_channel text, p_kind text, p_key text, p_ordering_key text, p_before bigint,
  p_limit integer
)
returns bigint[]
language plpgsql
as $$
declare
  v_channel_id bigint;
  v_ids bigint[];
begin
  if p_channel is not null then
    v_channel_id := coalesce((select c.id from fairqueue.fq_find_channel(p_queue, p_channel) c), -1);
  end if;
  if p_ids is not null then
    select array_agg(h.message_id order by h.died_at, h.message_id) into v_ids
    from (
      select d.message_id, d.died_at
      from fairqueue.fq_dead_letter d
      where d.message_id = any (p_ids)
        and d.queue is not distinct from p_queue
        and (v_channel_id is null or d.channel_id = v_channel_id)
        and (p_kind is null or d.kind = p_kind)
        and (p_key is null or d.key = p_key)
        and (p_ordering_key is null or d.ordering_key = p_ordering_key)
        and (p_before is null or d.died_at < p_before)
      order by d.message_id
      for update
    ) h;
    return v_ids;
  end if;
  -- Dead letters whose key is taken come after all others, so that they never stand in their way.
  for v_stands in 0..1 loop
    select v_ids || array_agg(h.message_id) into v_ids
    from (
      select d.message_id
      from fairqueue.fq_dead_letter d
      left join lateral (
        select m.id
        from fairqueue.fq_message m
        where m.channel_id = d.channel_id
          and m.key = d.key
        order by m.channel_id, m.key
        limit 1
      ) holder on true
      where d.queue = p_queue
        and (v_channel_id is null or d.channel_id = v_channel_id)
        and (p_kind is null or d.kind = p_kind)
        and (p_key is null or d.key = p_key)
        and (p_ordering_key is null or d.ordering_key = p_ordering_key)
        and d.died_at < coalesce(p_before, 9223372036854775807)
        and num_nonnulls(holder.id) = v_stands
      order by d.queue, d.died_at
      limit p_limit - coalesce(cardinality(v_ids), 0)
      for update of d skip locked
    ) h;
    exit when cardinality(v_ids) = p_limit;
  end loop;
  return v_ids;
end
$$;
