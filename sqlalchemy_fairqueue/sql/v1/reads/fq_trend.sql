-- fq_trend: a queue or a channel of it over the last p_over microseconds, a row each p_step: its begin, the most ready
-- messages and the longest wait of the samples in it, and the attempts that were served and failed. ready is null where
-- no sample is; served where the queue recorded no history. p_channel null: the queue.
-- Guarantees: one snapshot. A channel that is not among those of a sample had nothing, if these are fewer than 20; else
-- nothing is known of it.
-- Cost: what the queue has of samples in that time, at most 21 a minute. Locks: none. Index: fq_sample_pkey. Errors:
-- QF001 bad times; QF007.
create function fairqueue.fq_trend(p_queue text, p_channel text, p_over bigint, p_step bigint)
returns table (at bigint, ready bigint, oldest_wait bigint, served bigint, failed bigint)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_last bigint := fairqueue.fq_now() / greatest(p_step, 1) * p_step;
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_trend has step'::text, p_step::bigint, 60000000::bigint, 86400000000::bigint);
  perform fairqueue.fq_check_number('fq_trend has over'::text, p_over::bigint, p_step::bigint, 86400000000::bigint);
  return query
  with kept as (
    select s.at / p_step * p_step as step, case when count(*) <= 20 then 0 end as others,
      max(s.ready) filter (where s.channel = coalesce(p_channel, '')) as ready,
      max(s.oldest_wait) filter (where s.channel = coalesce(p_channel, '')) as oldest_wait,
      coalesce(max(s.served) filter (where s.channel = coalesce(p_channel, '')), 0) as served,
      coalesce(max(s.failed) filter (where s.channel = coalesce(p_channel, '')), 0) as failed,
      max(s.served) as most_served, max(s.failed) as most_failed
    from fairqueue.fq_sample s
    where s.queue = p_queue
      and s.at > v_last - p_over
      and s.at < v_last + p_step
      and (p_channel is not null or s.channel = '')
    group by s.at
  )
  select g.at, max(coalesce(k.ready, k.others)), max(coalesce(k.oldest_wait, k.others)),
    (sum(k.served) filter (where num_nonnulls(k.ready, k.others) > 0 and k.most_served is not null))::bigint,
    (sum(k.failed) filter (where num_nonnulls(k.ready, k.others) > 0 and k.most_failed is not null))::bigint
  from generate_series(v_last - p_over + p_step, v_last, p_step) g(at)
  left join kept k on k.step = g.at
  group by g.at
  order by g.at;
end
$$;
