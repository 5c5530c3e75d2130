-- fq_fold_groups: fold up to p_limit notes (fq_fold_notes) and, once none is left, finish up to p_groups groups whose
-- members have all ended, in the caller's transaction, which should end at once. Returns how many of both, and whether
-- there may be more; no row: another transaction folds.
-- Guarantees: exactly one follow-up of a group, the one for a failure if a member failed or was cancelled, is enqueued in
-- the transaction that finishes the group, whatever the caller was granted. One that cannot be enqueued stays, with the
-- problem, and other groups go on: it is tried again after a second if its channel is full; after 1, 2, 4, 8, then every
-- 16 seconds if another transaction makes its channel or has its key; else after a minute.
-- Locks: as fq_fold_notes; then what fq_enqueue locks, 20 ms at most for one follow-up. The call ends when one has
-- waited in vain, or after 100 ms: the caller's commit frees what it has locked. Index: as fq_fold_notes,
-- fq_group_due_ix, fq_group_followup_pkey, fq_channel_queue_name_key, fq_message_group_ix. Errors: QF001 bad argument.
create function fairqueue.fq_fold_groups(p_limit integer, p_groups integer, p_notify boolean)
returns table (folded bigint, finished bigint, more boolean)
language plpgsql
security definer
set lock_timeout = '200ms'
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_message_id bigint;
  v_outcome text;
  v_problem text;
  v_wait bigint;
  v_until timestamptz;
  v_waited boolean := false;
  v_headers jsonb;
  -- the group whose follow-up has waited in vain
  v_blocked record;
  r record;
begin
  perform fairqueue.fq_check_number('fq_fold_groups has limit'::text, p_limit::bigint, 1::bigint, 1000000::bigint);
  perform fairqueue.fq_check_number('fq_fold_groups has groups'::text, p_groups::bigint, 1::bigint, 10000::bigint);
  finished := 0;
  folded := fairqueue.fq_fold_notes(p_limit, v_now);
  if folded is null then
    return;
  end if;
  more := folded = p_limit;
  if more then
    return next;
    return;
  end if;

  v_until := clock_timestamp() + '100 ms'::interval;
  -- Until this function returns: none of what follows may wait longer while it has locks that others wait for.
  perform set_config('lock_timeout', '20ms', true);
  -- First messages that wait for nobody, then those with a key or of a new channel; of both, those that have waited in
  -- vain come last. This is also the order of locks: by queue, channel and key.
  for r in
    select g.group_id, g.queue, g.added, g.done, g.failed, g.cancelled, g.waits, w.channel,
      w.kind, w.content, w.headers, w.delay, w.at, w.priority, w.key, w.max_attempts, w.policy, w.ordering_key, w.is_new
    from (
      select d.*
      from fairqueue.fq_group d
      where d.finished_at is null
        and d.due_at <= v_now
      order by d.finished_at, d.due_at
      limit p_groups
    ) g
    left join lateral (
      select f.*,
        not exists (
          select
          from fairqueue.fq_channel c
          where c.queue = g.queue
            and c.name = f.channel
        ) as is_new
      from fairqueue.fq_group_followup f
      where f.group_id = g.group_id
        and (not f.on_failure or g.failed + g.cancelled > 0)
      order by f.on_failure desc
      limit 1
    ) w on true
    order by num_nonnulls(w.key) > 0 or w.is_new, g.waits > 0, g.queue, w.channel, w.key nulls first,
      g.group_id
  loop
    if v_waited then
      if (r.queue, r.channel) is distinct from (v_blocked.queue, v_blocked.channel)
        or not (r.is_new or r.key is not distinct from v_blocked.key)
      then
        more := true;
        continue;
      end if;
    elsif clock_timestamp() > v_until then
      more := true;
      exit;
    else
      finished := finished + 1;
      v_message_id := null;
      v_wait := null;
      v_problem := case
        -- A message was enqueued with the group without being counted: its end is noted, too.
        when exists (select from fairqueue.fq_message m where m.group_id = r.group_id)
        then 'it has messages that were not counted as its members, and is finished when they end'
      end;
    end if;
    if v_problem is null and r.channel is not null then
      begin
        v_headers := fairqueue.fq_group_headers(
          r.headers::jsonb, r.group_id::uuid, r.added::bigint, r.done::bigint, r.failed::bigint, r.cancelled::bigint
        );
        -- not fq_enqueue, which could refuse the channel to the caller
        select e.message_id, e.outcome into v_message_id, v_outcome
        from fairqueue.fq_enqueue_many(
          r.queue::text, array[r.channel]::text[], array[r.kind]::text[], array[r.content]::bytea[],
          array[v_headers]::jsonb[], array[r.delay]::bigint[], array[r.at]::bigint[], array[r.priority]::integer[],
          array[r.key]::text[], array[r.max_attempts]::integer[], r.policy::jsonb, null::text[], p_notify,
          null::bigint[], null::integer[], null::uuid[], null::bigint[], null::boolean[], false::boolean,
          array[r.ordering_key]::text[], fairqueue.fq_now()
        ) e;
        if v_outcome in ('full', 'dropped') then
          raise exception 'channel % is full', quote_literal(left(r.channel, 80))
            using errcode = 'QF005';
        end if;
      exception
        when lock_not_available or deadlock_detected then
          v_problem := format('another transaction makes %L or holds its key: %s', left(r.channel, 80), sqlerrm);
          v_wait := 1000000 << least(r.waits, 4);
          v_waited := true;
          v_blocked := r;
        when sqlstate 'QF005' then
          v_problem := sqlerrm;
          v_wait := 1000000;
        when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error
          or sqlstate 'QF001' or sqlstate 'QF011'
        then
          v_problem := sqlerrm;
          v_wait := 60000000;
      end;
    end if;
    if v_problem is not null then
      update fairqueue.fq_group g
      set problem = left(v_problem, 2000),
        due_at = v_now + v_wait,
        waits = case when v_waited then r.waits + 1 else 0 end
      where g.group_id = r.group_id;
      continue;
    end if;
    update fairqueue.fq_group g
    set finished_at = v_now,
      message_id = v_message_id,
      due_at = null,
      problem = null
    where g.group_id = r.group_id;
    delete from fairqueue.fq_group_followup f
    where f.group_id = r.group_id;
  end loop;
  more := more or finished = p_groups;
  return next;
end
$$;
