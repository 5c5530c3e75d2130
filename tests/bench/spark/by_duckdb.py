"""A history as Parquet, and the report's figures of it by DuckDB: ``python -m`` this, with FILE WINDOW WIDTH.

Windows and widths of fair shares are the report's. One process, all in memory that fits: no buckets, no carrying over.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import duckdb

_ROWS = """
copy (
  with dice as (
    select i, hash(i, 1) % 1000000 / 1e6 as who, hash(i, 2) % 1000000 / 1e6 as chance,
      (hash(i, 3) % (30::ubigint * 86400 * 1000000))::bigint as ready, hash(i, 4) % 1000000 / 1e6 as length
    from range($rows) t(i)
  ),
  attempts as (
    select i, if(who < 0.5, 1, 1 + (who * 1e6)::bigint % 1000) as channel_id, 1767225600000000 + ready as ready,
      (-ln(1 - chance) * 20e6)::bigint as wait, (-ln(1 - length) * 200e3)::bigint as service
    from dice
  )
  select i as id, 'documents' as queue, channel_id, 'tenant-' || channel_id as channel, i as message_id,
    'parse' as kind, 'worker' as consumer, 1::int as attempt, make_timestamptz(ready) as enqueued_at,
    make_timestamptz(ready) as ready_at,
    make_timestamptz(ready + wait) as started_at, make_timestamptz(ready + wait + service) as finished_at,
    if(i % 50 = 0, 'retried', 'completed') as outcome, null::varchar as error, i as recorded_xid
  from attempts
) to '{path}' (format parquet, row_group_size 250000)
"""
_QUERIES = {
    "attempt": """
create temp table attempt as
select channel, ready, started, finished, outcome, started - ready as wait, finished - started as service,
  greatest((finished - ready) * 1000 // greatest(finished - started, 10000), 1000) as slowdown
from (
  select channel_id as channel, epoch_us(ready_at) as ready, epoch_us(started_at) as started,
    epoch_us(finished_at) as finished, outcome
  from read_parquet('{path}')
)
""",
    "channel": """
create temp table channel as
select channel, count(*) as attempts, quantile_disc(wait, [0.5, 0.95, 0.99, 1]) as waits,
  quantile_disc(service, [0.5, 0.95, 0.99, 1]) as services, quantile_disc(slowdown, [0.5, 0.95, 0.99, 1]) as slowdowns,
  avg(wait) as mean_wait, histogram(outcome) as outcomes
from attempt group by channel
""",
    "queue": """
create temp table queue as
select quantile_disc(wait, [0.5, 0.95, 0.99, 1]) as waits, quantile_disc(service, [0.5, 0.95, 0.99, 1]) as services
from attempt
""",
    "over_time": """
create temp table over_time as
select started // {window} as moment, count(*) as started, quantile_disc(wait, [0.5, 0.95, 0.99, 1]) as waits
from attempt group by moment
""",
    "rate": """
create temp table rate as
select channel, max(number) as rate
from (select channel, count(*) as number from attempt group by channel, started // 1000000) group by channel
""",
    "sweep": """
create temp table sweep as
with event as (
  select channel, ready as moment, 1 as kind, 1 as waiting, 0 as held from attempt
  union all select channel, started, 2, -1, (service > 0)::int from attempt
  union all select channel, finished, 0, 0, -(service > 0)::int from attempt
),
step as (
  select *, moment - lag(moment) over (order by moment, kind) as step,
    sum(held) over (order by moment, kind rows between unbounded preceding and 1 preceding) as held_before
  from event
),
clock as (
  select channel, moment, kind, waiting, held,
    sum(case when held_before > 0 then step else 0 end) over (order by moment, kind rows unbounded preceding) as served
  from step
),
state as (
  select *, moment - lag(moment) over own as step, served - lag(served) over own as served_step,
    coalesce(sum(waiting) over before, 0) as waiting_before, coalesce(sum(held) over before, 0) as held_before
  from clock
  window own as (partition by channel order by moment, kind),
    before as (partition by channel order by moment, kind rows between unbounded preceding and 1 preceding)
),
begun as (
  select *, waiting_before > 0 and held_before = 0 as starving,
    last_value(case when waiting_before + waiting > 0 and held_before + held = 0
      and (kind = 2 or not (waiting_before > 0 and held_before = 0)) then served end ignore nulls)
      over (partition by channel order by moment, kind rows between unbounded preceding and 1 preceding) as begun
  from state
)
select channel, sum(case when waiting_before > 0 then step else 0 end) as backlogged,
  sum(case when starving then served_step else 0 end) as starved, max(held_before + held) as concurrency,
  max(case when kind = 2 and starving then served - begun end) as longest
from begun group by channel
""",
    "share": """
create temp table share as
with counted as (
  select channel, moment // {width} as moment, sum(became_ready) as became_ready, sum(served) as served
  from (select channel, ready as moment, 1 as became_ready, 0 as served from attempt
    union all select channel, started, 0, 1 from attempt)
  group by channel, moment // {width}
),
balance as (
  select *, coalesce(sum(became_ready - served) over before, 0) as waiting,
    lead(moment) over (partition by channel order by moment) as next_moment
  from counted
  window before as (partition by channel order by moment rows between unbounded preceding and 1 preceding)
),
filled as (
  select channel, moment, waiting, served from balance
  union all
  select channel, unnest(range(moment + 1, next_moment)), waiting + became_ready - served, 0
  from balance where waiting + became_ready - served > 0
),
used as (
  select *, greatest(waiting, served)::double as uses, sum(served) over (partition by moment)::double as all_served
  from filled where waiting > 0 or served > 0
),
ranked as (
  select *, coalesce(sum(uses) over earlier, 0) as before,
    count(*) over (partition by moment order by uses, channel rows between current row and unbounded following) as rest
  from used where all_served > 0
  window earlier as (partition by moment order by uses, channel rows between unbounded preceding and 1 preceding)
)
select *, least(uses, max((all_served - before) / rest) over (partition by moment)) as share
from ranked
""",
    "fairness": """
create temp table fairness as
select avg(fairness) as fairness
from (
  select case when count(*) > 1
    then pow(sum(served / share), 2) / (count(*) * sum(pow(served / share, 2))) end as fairness
  from share where waiting > served or served > share * (1 + 1e-9) group by moment
)
""",
    "denied": """
create temp table denied as
select channel, sum(greatest(share - served, 0)) * {width} as denied from share group by channel
""",
}


_ASKED = {
    "attempts": "sum(attempts) from channel",
    "wait_p95": "waits[2] from queue",
    "waits": "sum(waits[3]) from channel",
    "starved": "sum(starved) from sweep",
    "longest": "max(longest) from sweep",
    "fairness": "fairness from fairness",
    "denied": "sum(denied) from denied",
}


def write(path: Path, rows: int) -> None:
    """Write so many attempts of a month by a thousand tenants, one of whom has half of the messages."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(_ROWS.replace("{path}", str(path)), {"rows": rows})


def _run(path: str, window: int, width: int) -> dict[str, Any]:
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    connection.execute("set threads = 2")
    began, worked = time.monotonic(), time.process_time()
    for query in _QUERIES.values():
        connection.execute(query.format(path=path, window=window, width=width))
    used = {"seconds": time.monotonic() - began, "processor": time.process_time() - worked}
    used["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return used | {name: (connection.execute(f"select {sql}").fetchone() or [None])[0] for name, sql in _ASKED.items()}


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), default=float))  # noqa: T201 - its answer
