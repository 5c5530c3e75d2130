-- fq_enqueue_one_unique: what fq_enqueue_unique does with one message that has a key with a period and replaces none,
-- as most transactions send: by statements without arrays, whose start costs less. It is undone by hand: who waits for
-- its key goes on when a savepoint is rolled back in which it was added, and would not where it was added in a block of
-- its own.
-- Guarantees, locks, index, errors: as fq_enqueue_unique, its only caller, which has checked the rights, the arrays and
-- the period.
create function fairqueue.fq_enqueue_one_unique(
  p_queue text,
  p_channels text[],
  p_kinds text[],
  p_contents bytea[],
  p_headers jsonb[],
  p_delays bigint[],
  p_ats bigint[],
  p_priorities integer[],
  p_keys text[],
  p_max_attempts integer[],
  p_policy jsonb,
  p_on_duplicates text[],
  p_notify boolean,
  p_hold bigint[],
  p_costs integer[],
  p_groups uuid[],
  p_unique_fors bigint[],
  p_from_ends boolean[],
  out message_id bigint,
  out created boolean,
  out outcome text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
declare
  c_tries constant integer := 20;
  v_now bigint;
  v_message_id bigint;
  v_there boolean;
  v_taken boolean;
begin
  for v_try in 1..c_tries loop
    v_now := fairqueue.fq_now();
    select k.message_id,
      k.expires_at > v_now
        or (
          k.expires_at is null
          and exists (
            select
            from fairqueue.fq_message m
            where m.id = k.message_id
          )
        )
    into v_message_id, v_taken
    from fairqueue.fq_key_period k
    where k.queue = p_queue
      and k.channel = p_channels[1]
      and k.dedupe_key = p_keys[1];
    v_there := found;
    if v_taken then
      perform fairqueue.fq_check_messages(
        p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
        p_on_duplicates, p_costs, p_groups
      );
      message_id := v_message_id;
      created := false;
      outcome := 'duplicate';
      return;
    end if;
    select e.message_id, e.created, e.outcome into v_message_id, created, outcome
    from fairqueue.fq_enqueue(
      p_queue::text, p_channels::text[], p_kinds::text[], p_contents::bytea[], p_headers::jsonb[],
      p_delays::bigint[], p_ats::bigint[], p_priorities::integer[], p_keys::text[], p_max_attempts::integer[],
      p_policy::jsonb, p_on_duplicates::text[], p_notify::boolean, p_hold::bigint[], p_costs::integer[],
      p_groups::uuid[]
    ) e;
    message_id := v_message_id;
    if not created then
      return;
    end if;
    -- It may have waited.
    v_now := fairqueue.fq_now();
    if v_there then
      update fairqueue.fq_key_period k
      set message_id = v_message_id,
        unique_for = p_unique_fors[1],
        expires_at = case when not p_from_ends[1] then v_now + p_unique_fors[1] end
      where k.queue = p_queue
        and k.channel = p_channels[1]
        and k.dedupe_key = p_keys[1]
        and (
          k.expires_at <= v_now
          or (
            k.expires_at is null
            and not exists (
              select
              from fairqueue.fq_message m
              where m.id = k.message_id
            )
          )
        );
    else
      insert into fairqueue.fq_key_period (queue, channel, dedupe_key, message_id, unique_for, expires_at)
      select p_queue, p_channels[1], p_keys[1], v_message_id, p_unique_fors[1],
        case when not p_from_ends[1] then v_now + p_unique_fors[1] end
      where not exists (
        select
        from fairqueue.fq_key_period k
        where k.queue = p_queue
          and k.channel = p_channels[1]
          and k.dedupe_key = p_keys[1]
      )
      on conflict on constraint fq_key_period_pkey do nothing;
    end if;
    if found then
      if p_from_ends[1] then
        update fairqueue.fq_message m
        set key_outlives = true
        where m.id = v_message_id;
      end if;
      return;
    end if;
    delete from fairqueue.fq_message m
    where m.id = v_message_id;
    -- Nobody else has seen the signal. It is among the last ones: only those that others have sent since come later.
    delete from fairqueue.fq_signal g
    where g.ctid = (
        select c.ctid
        from fairqueue.fq_signal c
        where c.queue = p_queue
          and c.message_id = v_message_id
        order by c.queue desc, c.id desc
        limit 1
      );
  end loop;
  raise exception 'a key of queue % was taken for another period at each of % tries', quote_literal(p_queue), c_tries
    using errcode = '40001', hint = 'try the transaction again';
end
$$;
