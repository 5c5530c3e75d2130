"""Rows of the history that an archive lacks, counted on one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.archiving.files import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

_NEW = """
select h.finished_at / 86400000000, count(*)
from {schema}.fq_history h
where h.finished_at >= %(since)s
  and h.finished_at < %(until)s
  and h.recorded_xid >= %(low)s::text::xid8
  and h.recorded_xid < %(high)s::text::xid8
group by 1
"""
_LOST = """
select p.id, p.finished_from / 86400000000, p.recorded_xid::text::bigint
from {schema}.fq_pruned_history p
where p.id > %(pruned)s
order by p.id
"""


def pending_rows(
    connection: psycopg.Connection, schema: str, archived: Mapping[int, int], high: int, until: int
) -> dict[int, int]:
    """The number of rows that an archive lacks, by day.

    A day that was never archived is read whole; for the others the index on (recorded_xid, id) gives the later rows.

    Args:
        connection: A connection to the history, outside of a transaction.
        schema: The schema as statements quote it.
        archived: Up to which transaction each day is archived.
        high: The first transaction that is not to be archived.
        until: The first day that is not to be archived.
    """
    found: dict[int, int] = {}
    with connection.transaction():
        # Housekeeping may move rows to the partition of their day: on one snapshot they are counted once.
        connection.execute("set transaction isolation level repeatable read")
        for first, last, low in _day_ranges(archived, until):
            values = {"since": first * DAY, "until": last * DAY, "low": str(low), "high": str(high)}
            found |= dict(connection.execute(_NEW.format(schema=schema).encode(), values).fetchall())
    return dict(sorted(found.items()))


def lost_days(connection: psycopg.Connection, schema: str, archived: Mapping[int, int], pruned: int) -> list[int]:
    """The days of which rows were pruned before they were archived."""
    rows = connection.execute(_LOST.format(schema=schema).encode(), {"pruned": pruned}).fetchall()
    return sorted({day for _, day, xid in rows if xid >= archived.get(day, 0)})


def _day_ranges(archived: Mapping[int, int], until: int) -> Iterator[tuple[int, int, int]]:
    """Ranges of days with the transaction to begin at: each archived day, and the days between them."""
    reached = 0
    for day, high in sorted(archived.items()):
        if day >= until:
            break
        if day > reached:
            yield reached, day, 0
        yield day, day + 1, high
        reached = day + 1
    if reached < until:
        yield reached, until, 0
