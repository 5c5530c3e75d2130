"""Positions in the history, by its index on (recorded_xid, id), and rows that were pruned before they were read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.errors import DataLoss
from sqlalchemy_fairqueue.spark.reading.offsets import Position
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    import psycopg

    from sqlalchemy_fairqueue.spark.reading.offsets import Offset
    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.queries import Condition

_LAST = """
select h.recorded_xid::text::bigint, h.id
from {schema}.fq_history h
where h.recorded_xid < %(xmin)s::text::xid8
order by h.recorded_xid desc, h.id desc
limit 1
"""
_NEXT = """
select h.recorded_xid::text::bigint, h.id
from {schema}.fq_history h
where (h.recorded_xid, h.id) > (%(xid)s::text::xid8, %(id)s)
  and h.recorded_xid < %(xmin)s::text::xid8
order by h.recorded_xid, h.id
offset %(skip)s
limit 1
"""
_ENDS = """
select f.recorded_xid::text::bigint, f.id, l.recorded_xid::text::bigint, l.id
from (select h.recorded_xid, h.id from {schema}.fq_history h where {where} order by h.recorded_xid, h.id limit 1) f,
  (
    select h.recorded_xid, h.id from {schema}.fq_history h where {where} order by h.recorded_xid desc, h.id desc limit 1
  ) l
"""
_COUNT = """
select count(*)
from (
  select
  from {schema}.fq_history h
  where (h.recorded_xid, h.id) > (%(xid)s::text::xid8, %(id)s)
    and h.recorded_xid < %(xmin)s::text::xid8
  limit %(most)s
) r
"""


def last_position(connection: psycopg.Connection, schema: str, xmin: int) -> Position:
    """The position of the last row below a transaction; the beginning without any."""
    row = connection.execute(_LAST.format(schema=schema).encode(), {"xmin": str(xmin)}).fetchone()
    return Position(*row) if row else Position()


def position_after(connection: psycopg.Connection, schema: str, after: Position, rows: int, xmin: int) -> Position:
    """The position so many rows after another, below a transaction; the last one if there are fewer."""
    values = {"xid": str(after.xid), "id": after.id, "skip": rows - 1, "xmin": str(xmin)}
    row = connection.execute(_NEXT.format(schema=schema).encode(), values).fetchone()
    return Position(*row) if row else max(after, last_position(connection, schema, xmin))


def first_and_last(connection: psycopg.Connection, schema: str, condition: Condition) -> tuple[Position, Position]:
    """The positions of the first and the last row of a condition; the beginning twice without any."""
    statement = _ENDS.format(schema=schema, where=condition.text).encode()
    row = connection.execute(statement, condition.values).fetchone()
    return (Position(*row[:2]), Position(*row[2:])) if row else (Position(), Position())


def rows_after(connection: psycopg.Connection, schema: str, after: Position, xmin: int, most: int) -> int:
    """The number of rows after a position and below a transaction, counted up to *most*."""
    values = {"xid": str(after.xid), "id": after.id, "xmin": str(xmin), "most": most}
    row = connection.execute(_COUNT.format(schema=schema).encode(), values).fetchone()
    return int(row[0]) if row else 0


_log = logging.getLogger(__name__)

_LAST_PRUNED = "select coalesce(max(p.id), 0) from {schema}.fq_pruned_history p"
_LOST = """
select p.finished_from, p.finished_until, p.pruned_at
from {schema}.fq_pruned_history p
where p.id > %(pruned)s
  and (p.recorded_xid, p.history_id) > (%(xid)s::text::xid8, %(id)s)
  and p.finished_until > %(since)s
  and p.finished_from < %(until)s
order by p.finished_from, p.id
"""


def last_pruned(connection: psycopg.Connection, schema: str) -> int:
    """The newest entry of ``fq_pruned_history``, 0 without any."""
    row = connection.execute(_LAST_PRUNED.format(schema=schema).encode(), {}).fetchone()
    return int(row[0]) if row else 0


def check_losses(connection: psycopg.Connection, schema: str, after: Offset, options: ReadOptions) -> None:
    """Check that no rows after an offset were pruned, among the attempts that the options ask for.

    It must run after the rows were read, on a new snapshot, which then has a record of everything pruned before.

    Args:
        connection: A connection to the history, in a READ COMMITTED transaction or none.
        schema: The schema as statements quote it.
        after: The offset up to which rows had been read.
        options: The options of the read.

    Raises:
        DataLoss: Rows were pruned. With ``fail_on_data_loss=False`` it warns instead.
    """
    position, (since, until) = after.position, options.finished
    rows = connection.execute(
        _LOST.format(schema=schema).encode(),
        {"pruned": after.pruned, "xid": str(position.xid), "id": position.id, "since": since, "until": until},
    ).fetchall()
    if not rows:
        return
    first, last, when = instant(rows[0][0]), instant(max(row[1] for row in rows)), instant(max(row[2] for row in rows))
    lost = (
        f"attempts that finished from {first:%Y-%m-%d} until {last:%Y-%m-%d} were pruned from the history at "
        f"{when:%Y-%m-%d %H:%M:%S} UTC before they were read (position {position.xid}/{position.id})"
    )
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{lost}; go on without them with failOnDataLoss=false (fail_on_data_loss=False), and keep the history "
            "longer with queue.configure(session, history_retention=...)"
        )
    _log.warning("%s; going on without them", lost)
