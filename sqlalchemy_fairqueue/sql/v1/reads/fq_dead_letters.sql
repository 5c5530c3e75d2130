-- fq_dead_letters: up to p_limit dead letters of a queue (null: all), the oldest death first. Null restricts nothing.
-- p_died_at, p_message_id: those of the last row of the page before; p_error: a text that the reason or the error
-- contains; p_since, p_until: died from then on, and before then. max_attempts: the limit of the message; the policy of
-- a worker may have been lower, which the reason says.
-- Guarantees: one row each. If one cannot be read, its texts, content and headers are null, and unreadable says why.
-- Cost: what is returned. With p_error, which no index has: the dead letters between the times, or after the page
-- before, of the channel or the kind (of one of them, if both are given), until p_limit fit. Locks: none.
-- Index: fq_dead_letter_died_ix, fq_dead_letter_kind_ix, fq_dead_letter_channel_ix or fq_dead_letter_pkey,
-- fq_channel_pkey, fq_channel_queue_name_key. Errors: QF001 bad limit; QF007; none of a row's.
create function fairqueue.fq_dead_letters(
  p_queue text, p_ids bigint[] default null, p_channel text default null, p_kind text default null,
  p_died_at bigint default null, p_message_id bigint default null, p_limit integer default 100,
  p_error text default null, p_since bigint default null, p_until bigint default null, p_key text default null,
  p_ordering_key text default null
)
returns table (
  message_id bigint, channel text, kind text, content bytea, headers text, key text, ordering_key text,
  enqueued_at bigint, attempts integer, max_attempts integer, deliveries integer, reason text, error text,
  died_at bigint, unreadable text
)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
set enable_sort = off
as $$
declare
  v_found integer := 0;
  v_matches boolean;
  v_channel_id bigint;
  v_id bigint;
begin
  perform fairqueue.fq_check_number('fq_dead_letters has limit'::text, p_limit::bigint, 1::bigint, null::bigint)
  where p_limit is not null;
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  v_channel_id := (select k.id from fairqueue.fq_channel k where k.queue = p_queue and k.name = p_channel);
  if v_channel_id is null and p_channel is not null then
    return;
  end if;
  for v_id, channel, enqueued_at, attempts, max_attempts, deliveries, died_at in
    select d.message_id, c.name, d.enqueued_at, d.attempts, d.max_attempts, d.deliveries, d.died_at
    from fairqueue.fq_dead_letter d
    join fairqueue.fq_channel c on c.id = d.channel_id
    where d.queue = p_queue
      and (p_ids is null or d.message_id = any (p_ids))
      and (v_channel_id is null or d.channel_id = v_channel_id)
      and (p_kind is null or d.kind = p_kind)
      and (p_key is null or d.key = p_key)
      and (p_ordering_key is null or d.ordering_key = p_ordering_key)
      and d.died_at >= coalesce(p_since, 0)
      and d.died_at < coalesce(p_until, 9223372036854775807)
      and (p_died_at is null or (d.died_at, d.message_id) > (p_died_at, p_message_id))
    order by d.died_at, d.message_id
    limit case when p_error is null then p_limit end
  loop
    if p_error is not null then
      exit when v_found >= p_limit;
      begin
        select strpos(d.reason, p_error) > 0 or (strpos(d.error, p_error) > 0) is true into v_matches
        from fairqueue.fq_dead_letter d
        where d.message_id = v_id;
      exception
        when data_exception or program_limit_exceeded or internal_error then
          v_matches := false;
      end;
      continue when not v_matches;
      v_found := v_found + 1;
    end if;
    message_id := v_id;
    begin
      -- The content is read here even if it is stored apart (TOAST), and not when the row is sent.
      select d.kind || '', d.content || ''::bytea, d.headers::text,
        d.key, d.ordering_key || '', d.reason || '', d.error || '', null
      into kind, content, headers, key, ordering_key, reason, error, unreadable
      from fairqueue.fq_dead_letter d
      where d.message_id = v_id;
    exception
      when data_exception or program_limit_exceeded or internal_error then
        select left(sqlerrm, 1000), null, null, null, null, null, null, null
        into unreadable, kind, content, headers, key, ordering_key, reason, error;
    end;
    return next;
  end loop;
end
$$;
