-- fq_erase_channel: delete what a queue has of a channel, also what consumers hold, in the caller's transaction, which
-- should end at once: up to p_limit rows of each kind; attempts and results of messages behind p_after (0: begin), among
-- 10 * p_limit of all. Returns how many of each kind, and p_after for the next call (null: all has been looked at).
-- audits keep who did what and when. left_over: what others had locked when a call looked at attempts; the end of such
-- a message may leave an attempt that no later call sees, so erase once more.
-- Guarantees: slots are freed, members of groups end as cancelled; no handler can settle what was out. The last call
-- that leaves nothing over marks the channel for fq_forget_channels. What is committed later stays. A reader of the
-- history that is behind misses what is deleted. Locks: as fq_purge_channel; then others, skip locked; last attempts and
-- results, waiting for housekeeping. Index: those of its steps, of dead letters those by channel, of attempts by
-- message; audits of the queue and follow-ups of open groups are read whole. Errors: 40001; QF001 bad limit; QF007.
create function fairqueue.fq_erase_channel(
  p_queue text, p_channel text, p_limit integer, p_after bigint,
  out messages bigint, out leased bigint, out dead_letters bigint, out attempts bigint, out results bigint,
  out keys bigint, out schedules bigint, out followups bigint, out audits bigint, out left_over bigint,
  out after bigint
)
language plpgsql
security definer
as $$
declare
  v_channel_id bigint := (select c.id from fairqueue.fq_find_channel(p_queue, p_channel) c);
  v_ids bigint[];
  v_rows tid[];
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_erase_channel has limit'::text, p_limit::bigint, 1::bigint, 1000000::bigint);
  perform fairqueue.fq_check_number('fq_erase_channel has after'::text, p_after, 0::bigint, null::bigint);
  messages := fairqueue.fq_purge_channel(
    p_queue, p_channel, null::text, null::text, null::text, null::text, null::bigint, null::bigint, p_limit::bigint
  );
  with held as (
    update fairqueue.fq_message m
    set cancelled = true
    from (
      select x.ctid as row
      from fairqueue.fq_lease e
      join fairqueue.fq_message x on x.lease_id = e.id
      where e.queue = p_queue
        and x.channel_id = v_channel_id
      limit p_limit
      for update of x skip locked
    ) l
    where m.ctid = l.row
    returning m.id, m.ctid as row
  )
  select array_agg(h.id), array_agg(h.row), count(*) into v_ids, v_rows, leased
  from held h;
  perform fairqueue.fq_return_messages(
    p_queue, v_ids, v_rows, null::bigint[], null::text[], 0::integer, 'released'::text
  );

  delete from fairqueue.fq_dead_letter t
  where t.ctid = any (array(
      select x.ctid from fairqueue.fq_dead_letter x
      where x.channel_id = v_channel_id order by x.died_at, x.message_id limit p_limit for update skip locked
    ));
  get diagnostics dead_letters = row_count;
  delete from fairqueue.fq_key_period t
  where t.ctid = any (array(
      select x.ctid from fairqueue.fq_key_period x
      where x.queue = p_queue and x.channel = p_channel limit p_limit for update skip locked
    ));
  get diagnostics keys = row_count;
  delete from fairqueue.fq_schedule t
  where t.ctid = any (array(
      select x.ctid from fairqueue.fq_schedule x
      where x.queue = p_queue and x.channel = p_channel limit p_limit for update skip locked
    ));
  get diagnostics schedules = row_count;
  delete from fairqueue.fq_group_followup t
  where t.ctid = any (array(
      select x.ctid from fairqueue.fq_group_followup x
      join fairqueue.fq_group g on g.group_id = x.group_id and g.queue = p_queue
      where x.channel = p_channel limit p_limit for update of x skip locked
    ));
  get diagnostics followups = row_count;
  update fairqueue.fq_audit t
  set channel = null,
    details = null
  where t.ctid = any (array(
      select x.ctid from fairqueue.fq_audit x
      where x.queue = p_queue and x.channel = p_channel limit p_limit for update skip locked
    ));
  get diagnostics audits = row_count;
  select 0, 0, 0, p_after into attempts, results, left_over, after;
  if greatest(messages, leased, dead_letters, keys, schedules, followups, audits) = p_limit then
    return;
  end if;
  -- Before attempts are looked at: what ends meanwhile may leave one behind p_after.
  left_over := (select count(*) from fairqueue.fq_message m where m.channel_id = v_channel_id and m.lease_id is null)
    + (
      select count(*)
      from fairqueue.fq_lease e
      join fairqueue.fq_message m on m.lease_id = e.id
      where e.queue = p_queue
        and m.channel_id = v_channel_id
    )
    + (select count(*) from fairqueue.fq_dead_letter d where d.channel_id = v_channel_id);
  after := least(
    (
      select h.message_id
      from fairqueue.fq_history h
      where h.message_id > p_after
      order by h.message_id
      offset p_limit::bigint * 10
      limit 1
    ),
    (
      select r.message_id
      from fairqueue.fq_result r
      where r.message_id > p_after
      order by r.message_id
      offset p_limit::bigint * 10
      limit 1
    )
  );
  delete from fairqueue.fq_history h
  where h.message_id between p_after + 1 and coalesce(after, 9223372036854775807)
    and h.queue = p_queue
    and h.channel = p_channel;
  get diagnostics attempts = row_count;
  delete from fairqueue.fq_result r
  where r.message_id between p_after + 1 and coalesce(after, 9223372036854775807)
    and r.queue = p_queue
    and r.channel = p_channel;
  get diagnostics results = row_count;
  if after is not null or v_channel_id is null then
    return;
  end if;
  delete from fairqueue.fq_sample t
  where t.queue = p_queue
    and t.channel = p_channel;
  if left_over = 0 then
    perform fairqueue.fq_mark_erased(p_queue, v_channel_id);
  end if;
end
$$;
