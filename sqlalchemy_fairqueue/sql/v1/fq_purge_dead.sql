-- fq_purge_dead: delete dead letters of a queue for good, in the caller's transaction: those of p_ids or, if that is
-- null, all; only those of a channel, of a kind, with a key or an ordering key, dead before p_before (microseconds
-- since the epoch). Null restricts nothing. Returns how many.
-- Guarantees: all or nothing with the caller's transaction.
-- Locks: dead letters: those of p_ids in the order of their ids, which waits for a redrive or purge of the same; others
-- skip locked. Index: fq_dead_letter_pkey or fq_dead_letter_died_ix. Errors: 40001; QF007.
create function fairqueue.fq_purge_dead(
  p_queue text, p_ids bigint[] default null, p_channel text default null, p_kind text default null,
  p_before bigint default null, p_key text default null, p_ordering_key text default null
)
returns bigint
language plpgsql
security definer
as $$
declare
  v_channel_id bigint;
  v_deleted bigint;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if p_channel is not null then
    select c.id into v_channel_id
    from fairqueue.fq_find_channel(p_queue, p_channel) c;
    if not found then
      return 0;
    end if;
  end if;

  if p_ids is not null then
    with doomed as materialized (
      select d.ctid as row
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
    )
    delete from fairqueue.fq_dead_letter d
    using doomed u
    where d.ctid = u.row;
  else
    with doomed as materialized (
      select d.ctid as row
      from fairqueue.fq_dead_letter d
      where d.queue = p_queue
        and (v_channel_id is null or d.channel_id = v_channel_id)
        and (p_kind is null or d.kind = p_kind)
        and (p_key is null or d.key = p_key)
        and (p_ordering_key is null or d.ordering_key = p_ordering_key)
        and d.died_at < coalesce(p_before, 9223372036854775807)
      order by d.queue, d.died_at
      for update skip locked
    )
    delete from fairqueue.fq_dead_letter d
    using doomed u
    where d.ctid = u.row;
  end if;
  get diagnostics v_deleted = row_count;
  return v_deleted;
end
$$;
