"""Opens connections for the readers, and makes their queries."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import SchemaMismatch
from sqlalchemy_fairqueue.spark.connections import connect, find_installation, query, translated_errors
from sqlalchemy_fairqueue.spark.errors import DataLoss
from sqlalchemy_fairqueue.spark.executors import freeze_modules
from sqlalchemy_fairqueue.spark.reading.offsets import Horizon, Origin, Position
from sqlalchemy_fairqueue.spark.reading.tables import batches, expressions
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg
    import pyarrow as pa

    from sqlalchemy_fairqueue.spark.connections import Installation
    from sqlalchemy_fairqueue.spark.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.offsets import Offset
    from sqlalchemy_fairqueue.spark.reading.tables import Column, Table

# Without JIT, since compiling a query takes longer than reading a batch.
_SETTINGS = (
    "set jit = off; set default_transaction_read_only = on; "
    "set default_transaction_isolation = 'read committed'; "
    "set client_min_messages = warning"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunction of conditions, with their values."""

    clauses: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)

    def also(self, clause: str, **values: object) -> Condition:
        return Condition((*self.clauses, clause), self.values | values)

    def both(self, other: Condition) -> Condition:
        return Condition((*self.clauses, *other.clauses), self.values | other.values)

    @property
    def text(self) -> str:
        return " and ".join(self.clauses) or "true"


@contextmanager
def reading_connection(options: ReadOptions, purpose: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """Yield a connection for reading, outside of a transaction, and the quoted schema."""
    freeze_modules()
    connection = connect(options, purpose, autocommit=True)
    try:
        yield connection, prepared_installation(connection, options).quoted
    finally:
        connection.close()


def prepared_installation(connection: psycopg.Connection, options: ReadOptions) -> Installation:
    with translated_errors("prepare to read"):
        connection.execute(_SETTINGS)
        return find_installation(connection, options.schema)


def horizon(connection: psycopg.Connection, schema: str) -> Horizon:
    name = schema.replace("%%", "%")
    [row] = query(connection, "horizon", {"history": f"{name}.fq_history"})
    if row[3] is None:
        raise SchemaMismatch(f"schema {name} has no fq_history; upgrade fairqueue's schema, or name another schema")
    return Horizon(Origin(str(row[0]), *map(int, row[1:4])), str(row[4]), int(row[5]), int(row[6]))


def base_condition(table: Table, options: ReadOptions) -> Condition:
    condition = Condition()
    if options.queue is not None:
        condition = condition.also(f"{table.queue} = %(queue)s", queue=options.queue)
    if options.channels:
        condition = condition.also(f"{table.channel} = any(%(channels)s::text[])", channels=list(options.channels))
    return condition.both(finished_condition(options))


def finished_condition(options: ReadOptions, unit: int = 1) -> Condition:
    """Return the condition for the options since and until, widened to whole units of *unit* microseconds."""
    condition, (since, until) = Condition(), options.finished
    if options.since is not None:
        condition = condition.also("h.finished_at >= %(since)s", since=since // unit * unit)
    if options.until is not None:
        condition = condition.also("h.finished_at < %(until)s", until=-(-until // unit) * unit)
    return condition


def position_range(condition: Condition, after: Position, upto: Position) -> Condition:
    return condition.also(
        "(h.recorded_xid, h.id) > (%(after_xid)s::text::xid8, %(after_id)s)"
        " and (h.recorded_xid, h.id) <= (%(upto_xid)s::text::xid8, %(upto_id)s)",
        after_xid=str(after.xid),
        after_id=after.id,
        upto_xid=str(upto.xid),
        upto_id=upto.id,
    )


def rows(
    connection: psycopg.Connection, schema: str, table: Table, columns: Sequence[Column], condition: Condition
) -> Iterator[pa.RecordBatch]:
    names = ", ".join(expressions(columns))
    source = f"{table.source} {table.joins}".format(schema=schema)
    text = f"select {names} from {source} where {condition.text}"  # noqa: S608 - of the definitions of tables
    with translated_errors(f"read table {table.name}"):
        yield from batches(connection, text, condition.values, columns)


_ROWS_A_TASK = 250_000
_MAX_TASKS = 16


def split(condition: Condition, key: str, low: int, high: int, count: int) -> list[Condition]:
    """Split a condition into at most *count* parts, each for a range of *key*, an SQL expression.

    The ranges divide *low* to *high* about equally. The first also has all lower keys, and the last all higher keys.
    """
    width = max(high - low + 1, 1)
    count = max(1, min(count, width))
    cuts = [low + width * part // count for part in range(1, count)]
    cast = "text::xid8" if key.endswith("_xid") else "bigint"
    parts = []
    for first, after in zip([None, *cuts], [*cuts, None], strict=True):
        part = condition if first is None else condition.also(f"{key} >= %(low)s::{cast}", low=str(first))
        parts.append(part if after is None else part.also(f"{key} < %(high)s::{cast}", high=str(after)))
    return parts


def task_count(low: int, high: int, requested: int | None) -> int:
    return requested or max(1, min(_MAX_TASKS, -(-(high - low) // _ROWS_A_TASK)))


_log = logging.getLogger(__name__)


def last_position(connection: psycopg.Connection, schema: str, xmin: int) -> Position:
    """Return the position of the last row that a transaction below *xmin* recorded, or the beginning."""
    found = query(connection, "last_position", {"xmin": str(xmin)}, schema=schema)
    return Position(*found[0]) if found else Position()


def position_after(connection: psycopg.Connection, schema: str, after: Position, rows: int, xmin: int) -> Position:
    """Return the position that is *rows* rows beyond *after*, but no later than the last row below *xmin*."""
    values = {"xid": str(after.xid), "id": after.id, "skip": rows - 1, "xmin": str(xmin)}
    found = query(connection, "position_after", values, schema=schema)
    return Position(*found[0]) if found else max(after, last_position(connection, schema, xmin))


def first_and_last(connection: psycopg.Connection, schema: str, condition: Condition) -> tuple[Position, Position]:
    found = query(connection, "first_and_last", condition.values, schema=schema, where=condition.text)
    return (Position(*found[0][:2]), Position(*found[0][2:])) if found else (Position(), Position())


def rows_after(connection: psycopg.Connection, schema: str, after: Position, xmin: int, most: int) -> int:
    """Count the rows after a position that transactions below *xmin* recorded. Stop the count at *most*."""
    values = {"xid": str(after.xid), "id": after.id, "xmin": str(xmin), "most": most}
    [(count,)] = query(connection, "rows_after", values, schema=schema)
    return int(count)


def last_pruned(connection: psycopg.Connection, schema: str) -> int:
    [(last,)] = query(connection, "last_pruned", {}, schema=schema)
    return int(last)


def check_losses(connection: psycopg.Connection, schema: str, after: Offset, options: ReadOptions) -> None:
    """Raise DataLoss if attempts after an offset were pruned from the history; only warn if the options say so.

    Attempts outside of the options since and until do not count, but attempts of other queues do. To check rows that
    were read, call this after the read, in a READ COMMITTED transaction or none: the check needs a new snapshot.
    """
    position, (since, until) = after.position, options.finished
    values = {"pruned": after.pruned, "xid": str(position.xid), "id": position.id, "since": since, "until": until}
    rows = query(connection, "lost_rows", values, schema=schema)
    if not rows:
        return
    first, last, when = instant(rows[0][0]), instant(max(row[1] for row in rows)), instant(max(row[2] for row in rows))
    lost = (
        f"attempts that finished from {first:%Y-%m-%d} until {last:%Y-%m-%d} were pruned from the history at "
        f"{when:%Y-%m-%d %H:%M:%S} UTC before they were read (position {position.xid}/{position.id})"
    )
    note_loss(options, lost, "keep the history longer with queue.configure(session, history_retention=...)")


def note_loss(options: ReadOptions, lost: str, otherwise: str) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{lost}; go on without them with failOnDataLoss=false (fail_on_data_loss=False), and {otherwise}"
        )
    _log.warning("%s; going on without them", lost)
