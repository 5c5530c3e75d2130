-- fq_erase_ended: delete the attempts and results of a channel among the next p_limit rows of the history and p_limit
-- results of all queues. p_after: the recorded_xid and id of the last attempt that was looked at, and the message of
-- the last result; 0: begin. Returns how many of each, and the next p_after; null: there are no more.
-- Guarantees: what is committed later, by a transaction that began before, may stay. A reader of the history that is
-- behind misses what is deleted.
-- Locks: the attempts and the results, waiting for housekeeping that deletes one. Index: fq_history_recorded_ix,
-- fq_result_pkey. Errors: none.
create function fairqueue.fq_erase_ended(
  p_queue text, p_channel text, p_limit bigint, p_after bigint[],
  out attempts bigint, out results bigint, out after bigint[]
)
language plpgsql
as $$
declare
  v_attempt bigint[];
  v_result bigint;
begin
  with page as materialized (
    select h.recorded_xid, h.id, h.finished_at, h.queue = p_queue and h.channel = p_channel as is_ours
    from fairqueue.fq_history h
    where (h.recorded_xid, h.id) > (p_after[1]::text::xid8, p_after[2])
    order by h.recorded_xid, h.id
    limit p_limit
  ),
  gone as (
    delete from fairqueue.fq_history h
    using page p
    where p.is_ours
      and h.recorded_xid = p.recorded_xid
      and h.id = p.id
      and h.finished_at = p.finished_at
    returning 1
  )
  select
    (select count(*) from gone),
    (
      select array[p.recorded_xid::text::bigint, p.id]
      from page p
      order by p.recorded_xid desc, p.id desc
      limit 1
    )
  into attempts, v_attempt;

  with page as materialized (
    select r.message_id, r.queue = p_queue and r.channel = p_channel as is_ours
    from fairqueue.fq_result r
    where r.message_id > p_after[3]
    order by r.message_id
    limit p_limit
  ),
  gone as (
    delete from fairqueue.fq_result r
    where r.message_id = any (array(select p.message_id from page p where p.is_ours))
    returning 1
  )
  select (select count(*) from gone), (select max(p.message_id) from page p) into results, v_result;
  if v_attempt is not null or v_result is not null then
    after := array[
      coalesce(v_attempt[1], p_after[1]), coalesce(v_attempt[2], p_after[2]), coalesce(v_result, p_after[3])
    ];
  end if;
end
$$;
