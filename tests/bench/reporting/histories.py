"""A history of a month, as Parquet: a thousand tenants, one of whom has half of the messages."""

from pathlib import Path

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


def write(path: Path, rows: int) -> None:
    """Write so many attempts."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(_ROWS.replace("{path}", str(path)), {"rows": rows})
