"""What the history has and an archive has not, counted on one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.archiving.names import DAY

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


def pending(
    connection: psycopg.Connection, schema: str, archived: Mapping[int, int], high: int, until: int
) -> dict[int, int]:
    """How many rows of each day an archive lacks.

    A day that was never archived is read whole; of one that was, the index on (recorded_xid, id) gives what came later.

    Args:
        connection: Where the history is, outside of a transaction.
        schema: The schema as it stands in statements.
        archived: Up to which transaction each day is archived.
        high: The first transaction that is not to be archived.
        until: The first day that is not.
    """
    found: dict[int, int] = {}
    with connection.transaction():
        # Rows that housekeeping moves to their day are counted once.
        connection.execute("set transaction isolation level repeatable read")
        for first, last, low in _stretches(archived, until):
            values = {"since": first * DAY, "until": last * DAY, "low": str(low), "high": str(high)}
            found |= dict(connection.execute(_NEW.format(schema=schema).encode(), values).fetchall())
    return dict(sorted(found.items()))


def lost_days(connection: psycopg.Connection, schema: str, archived: Mapping[int, int], pruned: int) -> list[int]:
    """The days of which rows were taken away before they were archived."""
    rows = connection.execute(_LOST.format(schema=schema).encode(), {"pruned": pruned}).fetchall()
    return sorted({day for _, day, xid in rows if xid >= archived.get(day, 0)})


def _stretches(archived: Mapping[int, int], until: int) -> Iterator[tuple[int, int, int]]:
    """Days from one to another and the transaction to begin at: each archived day, and the stretches between them."""
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
