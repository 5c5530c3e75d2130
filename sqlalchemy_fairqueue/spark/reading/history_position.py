"""Positions in the history, found by its index on (recorded_xid, id)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.reading.offsets import Position

if TYPE_CHECKING:
    import psycopg

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
