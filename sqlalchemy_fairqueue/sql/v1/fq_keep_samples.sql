-- fq_keep_samples: write the samples of this minute for queues that exist and have none yet: a row a queue, and one for
-- each of up to 20 of its channels, those with the longest backlogs first, then those with the most attempts that
-- ended. Returns the number of rows. With them the sizes of the ten largest tables are written, once an hour.
-- Guarantees: one row a queue, channel and minute, however many workers call; calls take a twentieth of the time at
-- most. ready and oldest_wait are those of fq_stats and fq_channel_stats. served and failed are what fq_completions
-- counts since the row before, null if that is older than ten minutes; without a history failed are the dead letters.
-- Cost: a probe a queue whose row is there; else that of fq_stats, two probes a channel with messages, and the history
-- since the row before. Locks: waits for another call that writes or deletes the same rows, and for who truncates
-- a table. Index: fq_sample_pkey, fq_dead_letter_died_ix, fq_size_pkey, those of its steps. Errors: QF007.
create function fairqueue.fq_keep_samples(p_queues text[])
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  c_minute constant bigint := 60000000;
  c_hour constant bigint := 60 * c_minute;
  c_most constant integer := 20;
  v_now bigint := fairqueue.fq_now();
  v_at bigint := v_now / c_minute * c_minute;
  v_began timestamptz := clock_timestamp();
  v_rows integer;
begin
  perform fairqueue.fq_check_grant(array['consumer', 'operator']::text[], q.name, null::text[])
  from unnest(p_queues) q(name);
  with due as materialized (
    select q.name, b.at, b.snapshot, coalesce(c.history, false) as history
    from (select distinct u.name from unnest(p_queues) u(name)) q
    left join lateral (
      select s.at, s.snapshot, s.took
      from fairqueue.fq_sample s
      where s.queue = q.name
        and s.channel = ''
        and s.at between v_at - 10 * c_minute and v_at - 1
      order by s.queue desc, s.at desc
      limit 1
    ) b on true
    left join fairqueue.fq_queue c on c.name = q.name
    where (num_nonnulls(c.name) = 1 or exists (select from fairqueue.fq_channel k where k.queue = q.name))
      and not exists (select from fairqueue.fq_sample s where (s.queue, s.at, s.channel) = (q.name, v_at, ''))
      and (b.at > v_at - 20 * b.took) is not true
  ),
  ended as materialized (
    select e.queue, e.channel, e.completed as served, e.failed
    from (
      select d.snapshot, array_agg(d.name) as queues
      from due d
      where d.history
        and d.snapshot is not null
      group by d.snapshot
    ) g
    cross join lateral fairqueue.fq_completions(g.snapshot::text, g.queues::text[]) e
    union all
    select d.name, c.name, null, l.failed
    from due d
    cross join lateral (
      select x.channel_id, count(*) as failed
      from fairqueue.fq_dead_letter x
      where x.queue = d.name
        and x.died_at >= d.at
        and x.died_at < v_at
      group by x.channel_id
    ) l
    join fairqueue.fq_channel c on c.id = l.channel_id
    where not d.history
  ),
  chosen as (
    select r.queue, (array_agg(r.channel order by r.backlog desc, r.ended desc, r.channel))[:c_most] as channels
    from (
      select u.queue, u.channel, max(u.backlog) as backlog, max(u.ended) as ended
      from (
        select d.name as queue, c.name as channel, b.backlog, 0 as ended
        from due d
        cross join lateral (
          select k.channel_id, k.backlog + k.added as backlog
          from fairqueue.fq_busy_channels(d.name, null::text[], null::integer, null::integer) k
          where k.changed
            or k.head_dequeue_at <= v_now
          order by k.backlog + k.added desc
          limit c_most
        ) b
        join fairqueue.fq_channel c on c.id = b.channel_id
        where b.backlog > 0
        union all
        select e.queue, e.channel, 0, coalesce(e.served, 0) + e.failed
        from ended e
      ) u
      group by u.queue, u.channel
    ) r
    group by r.queue
  ),
  counted as (
    select d.name, '' as channel, s.ready, s.oldest_ready_at
    from due d
    cross join lateral fairqueue.fq_stats(d.name::text) s
    union all
    select h.queue, s.channel, s.ready, s.oldest_ready_at
    from chosen h
    cross join lateral fairqueue.fq_channel_stats(
      h.queue::text, h.channels::text[], c_most, null::text, false::boolean
    ) s
  )
  insert into fairqueue.fq_sample (queue, at, channel, ready, oldest_wait, served, failed, snapshot, took)
  select n.name, v_at, n.channel, n.ready, greatest(0, v_now - coalesce(n.oldest_ready_at, v_now)),
    case when d.history and d.at is not null then coalesce(t.served, 0) end,
    case when d.at is not null then coalesce(t.failed, 0) end,
    case when n.channel = '' then pg_current_snapshot()::text end,
    case when n.channel = '' then extract(epoch from clock_timestamp() - v_began) * 1000000 end
  from counted n
  join due d on d.name = n.name
  left join (
    select e.queue, coalesce(e.channel, '') as channel, sum(e.served)::bigint as served, sum(e.failed)::bigint as failed
    from ended e
    group by grouping sets ((e.queue, e.channel), (e.queue))
  ) t on t.queue = n.name and t.channel = n.channel
  order by n.name, n.channel
  on conflict do nothing;
  get diagnostics v_rows = row_count;
  if v_rows > 0 then
    insert into fairqueue.fq_size (at, name, bytes)
    select v_now / c_hour * c_hour, l.name, l.bytes
    from (
      select coalesce(p.relname, c.relname) as name, sum(pg_total_relation_size(c.oid)) as bytes
      from pg_class c
      left join pg_inherits i on i.inhrelid = c.oid
      left join pg_class p on p.oid = i.inhparent
      where c.relnamespace = (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_message))
        and c.relkind = 'r'
        and starts_with(c.relname, 'fq_')
        and not exists (select from fairqueue.fq_size s where s.at = v_now / c_hour * c_hour)
      group by 1
      order by 2 desc, 1
      limit 10
    ) l
    -- In one order, so that two calls never wait for each other.
    order by l.name
    on conflict do nothing;
    delete from fairqueue.fq_sample s
    where s.queue = any (p_queues)
      and s.at < v_at - 1500 * c_minute;
  end if;
  return v_rows;
end
$$;
