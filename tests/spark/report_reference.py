"""The figures of the report once more, in PostgreSQL, each by another way than the report's: sets of ranges, no sweeps,
counting at each instant, message by message, shares filled up round by round.
"""

VIEW = """
create view attempt as
select queue, channel_id, channel, ready_at as ready, greatest(ready_at, started_at) as started,
  greatest(ready_at, started_at, finished_at) as finished, outcome
from fq_history
"""

CHANNELS = """
select queue, channel, count(*) as attempts,
  percentile_disc(array[0.5, 0.95, 0.99, 1]) within group (order by started - ready) as wait,
  percentile_disc(array[0.5, 0.95, 0.99, 1]) within group (order by finished - started) as service,
  percentile_disc(array[0.5, 0.95, 0.99, 1])
    within group (order by greatest((finished - ready) * 1000 / greatest(finished - started, 10000), 1000)) as slowdown,
  avg(started - ready) as mean_wait,
  array[count(*) filter (where outcome = 'completed'), count(*) filter (where outcome = 'retried'),
    count(*) filter (where outcome = 'released'), count(*) filter (where outcome = 'buried'),
    count(*) filter (where outcome = 'expired'), count(*) filter (where outcome = 'cancelled')] as outcomes,
  max((select count(*) from attempt b where (b.queue, b.channel) = (a.queue, a.channel)
    and b.started <= a.started and b.finished > a.started)) as concurrency,
  (select max(number) from (select count(*) as number from attempt b
    where (b.queue, b.channel) = (a.queue, a.channel) group by b.started / 1000000) s) as rate
from attempt a
group by queue, channel
"""

QUEUES = """
select queue, count(distinct channel) as channels, min(ready) as first, max(finished) as last,
  percentile_disc(array[0.5, 0.95, 0.99, 1]) within group (order by started - ready) as wait,
  percentile_disc(array[0.5, 0.95, 0.99, 1]) within group (order by finished - started) as service,
  (select sum(upper(r) - lower(r)) from unnest((
    select range_agg(int8range(b.started, b.finished)) from attempt b where b.queue = a.queue)) r) as busy,
  (select max((
      select count(*) from attempt c where c.queue = a.queue and c.started <= b.started and c.finished > b.started))
    from attempt b where b.queue = a.queue) as concurrency
from attempt a
group by queue
"""

# starving: somebody waits, nobody of the channel is served, and somebody of the queue is.
STARVATION = """
with ranges as (
  select queue, channel, range_agg(int8range(ready, started)) as waiting,
    coalesce(range_agg(int8range(started, finished)), '{}') as held
  from attempt
  group by queue, channel
),
starving as (
  select r.queue, r.channel, r.waiting, r.waiting - r.held as alone,
    (r.waiting - r.held) * (
      select range_agg(int8range(b.started, b.finished)) from attempt b where b.queue = r.queue
    ) as starving
  from ranges r
),
stretches as (
  select s.queue, s.channel, s.starving * g.gap as starving, s.alone * g.gap as alone
  from starving s
  cross join lateral (
    select int8multirange(int8range(lag(t.started) over (order by t.started), t.started)) as gap
    from (select distinct b.started from attempt b where b.queue = s.queue and b.channel = s.channel) t
  ) g
),
lengths as (
  select x.queue, x.channel, lower(x.alone) as begin, upper(x.alone) as end,
    (select sum(upper(r) - lower(r)) from unnest(x.starving) r) as lasted
  from stretches x
)
select s.queue, s.channel,
  coalesce((select sum(upper(r) - lower(r)) from unnest(s.waiting) r), 0) as backlogged,
  coalesce((select sum(upper(r) - lower(r)) from unnest(s.starving) r), 0) as starved,
  (select array[l.lasted, l.begin, l.end] from lengths l
    where l.queue = s.queue and l.channel = s.channel and l.lasted > 0
    order by l.lasted desc, l.begin desc limit 1) as longest
from starving s
"""

# The algorithm as its definition has it, message by message.
BURSTS = """
with recursive numbered as (
  select a.queue, a.channel, a.started, p.rate_interval as step,
    row_number() over (partition by a.queue, a.channel order by a.started) as number
  from attempt a
  join policy p using (queue, channel)
  where p.rate_interval > 0
),
followed as (
  select *, started + step as theoretical
  from numbered
  where number = 1
  union all
  select n.*, greatest(f.theoretical, n.started) + n.step
  from followed f
  join numbered n on n.queue = f.queue and n.channel = f.channel and n.number = f.number + 1
)
select queue, channel, max(ceil((theoretical - started)::numeric / step)) as burst
from followed
group by queue, channel
"""

WINDOWS = """
select w.at * :window as begin,
  count(*) filter (where a.started / :window = w.at) as started,
  count(*) filter (where a.finished / :window = w.at and a.outcome = 'completed') as completed,
  count(*) filter (where a.ready / :window <= w.at and a.started / :window > w.at) as waiting,
  percentile_disc(array[0.5, 0.95, 0.99, 1]) within group (order by a.started - a.ready)
    filter (where a.started / :window = w.at) as wait
from (select generate_series(min(ready) / :window, max(finished) / :window) as at from attempt where queue = :queue) w
cross join attempt a
where a.queue = :queue
group by w.at
order by w.at
"""

# Every round gives those who are not full yet, by their weights, what is left; who is full keeps what it can use.
SHARES = """
create table share as
with recursive counted as (
  select w.at, c.channel,
    (select count(*) from attempt a
      where a.queue = :queue and a.channel = c.channel
        and a.ready / :width < w.at and a.started / :width >= w.at) as waiting,
    (select count(*) from attempt a
      where a.queue = :queue and a.channel = c.channel and a.started / :width = w.at) as served
  from (select generate_series(min(ready) / :width, max(finished) / :width) as at from attempt where queue = :queue) w
  cross join (
    select channel from attempt where queue = :queue group by channel
  ) c
),
used as (
  select n.at, n.channel, n.waiting, n.served, coalesce(p.weight, 1)::float as weight,
    greatest(n.served, least(n.waiting,
      case when p.rate_interval > 0 then :width / p.rate_interval + p.rate_burst end,
      p.max_concurrency * :width / nullif((
        select avg(a.finished - a.started)::float from attempt a where a.queue = :queue and a.channel = n.channel), 0)
    ))::float as uses
  from counted n
  left join policy p on p.queue = :queue and p.channel = n.channel
  where n.waiting > 0 or n.served > 0
),
filled as (
  select at, channel, waiting, served, weight, uses, 0::float as share, false as full_up, 0 as round,
    sum(served) over (partition by at)::float as rest
  from used
  union all
  select g.at, g.channel, g.waiting, g.served, g.weight, g.uses, g.given, g.given >= g.uses - 1e-9, g.round + 1,
    g.all_served - sum(case when g.given >= g.uses - 1e-9 then g.uses else 0 end) over (partition by g.at)
  from (
    select f.*,
      case when f.full_up then f.uses
        else least(f.uses,
          f.rest * f.weight / sum(case when f.full_up then 0 else f.weight end) over (partition by f.at))
      end as given,
      sum(f.served) over (partition by f.at)::float as all_served
    from filled f
    where f.round < 20
  ) g
)
select at, channel, waiting, served, weight, uses, share
from filled
where round = 20
  and at in (select at from used group by at having sum(served) > 0)
"""

INDEXES = """
with competing as (
  select at, served / share as part
  from share
  where waiting > served or served > share * (1 + 1e-9)
),
indexes as (
  select s.at, (
    select pow(sum(c.part), 2) / (count(*) * sum(c.part * c.part))
    from competing c where c.at = s.at having count(*) > 1) as fairness
  from share s
  group by s.at
)
select avg(fairness) as fairness, min(fairness) as least_fairness, count(fairness)::float / count(*) as contended
from indexes
"""

DENIED = """
select channel,
  sum(case when waiting > 0 then served end)::float / sum(case when waiting > 0 then share end) as fair_share,
  sum(greatest(share - served, 0)) * :width
    / (select count(*) from attempt a where a.queue = :queue and a.channel = s.channel) as denied
from share s
group by channel
"""
