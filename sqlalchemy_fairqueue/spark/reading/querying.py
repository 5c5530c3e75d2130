"""The statements that read, and the connections that run them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.spark.connecting import connect, installation, refusals
from sqlalchemy_fairqueue.spark.reading.copying import batches, expressions
from sqlalchemy_fairqueue.spark.reading.workers import spare_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg
    import pyarrow as pa

    from sqlalchemy_fairqueue.spark.reading.offsets import Position
    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.tables import Column, Table

# Compiling a query takes longer than reading a batch.
_SETTINGS = "set jit = off; set client_encoding = 'UTF8'; set default_transaction_read_only = on"


@dataclass(frozen=True, slots=True)
class Condition:
    """Conditions that all hold, with their values."""

    clauses: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)

    def also(self, clause: str, **values: object) -> Condition:
        """With one more condition."""
        return Condition((*self.clauses, clause), self.values | values)

    @property
    def text(self) -> str:
        """What follows ``where``."""
        return " and ".join(self.clauses) or "true"


@contextmanager
def opened(options: ReadOptions, purpose: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """A connection for reading, outside of any transaction, and the schema for statements; closed afterwards."""
    spare_modules()
    connection = connect(options, purpose, autocommit=True)
    try:
        yield connection, prepared(connection, options)
    finally:
        connection.close()


def prepared(connection: psycopg.Connection, options: ReadOptions) -> str:
    """Set a new connection for reading; the schema as it stands in statements."""
    with refusals("prepare to read"):
        connection.execute(_SETTINGS)
        # Statements are put together with values: a percent sign stands for one of those.
        return installation(connection, options.schema).quoted.replace("%", "%%")


def wanted(table: Table, options: ReadOptions) -> Condition:
    """The rows that the options ask for, whoever reads them."""
    condition = Condition()
    if options.queue is not None:
        condition = condition.also(f"{table.queue} = %(queue)s", queue=options.queue)
    if options.channels:
        condition = condition.also(f"{table.channel} = any(%(channels)s::text[])", channels=list(options.channels))
    since, until = options.finished
    if options.since is not None:
        condition = condition.also("h.finished_at >= %(since)s", since=since)
    if options.until is not None:
        condition = condition.also("h.finished_at < %(until)s", until=until)
    return condition


def between(condition: Condition, after: Position, upto: Position) -> Condition:
    """Those of the history behind one position up to another, that one included."""
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
    """The rows that a condition leaves, as Arrow batches."""
    names = ", ".join(expressions(columns))
    query = " ".join(["select", names, "from", table.source.format(schema=schema), "where", condition.text])
    with refusals(f"read table {table.name}"):
        yield from batches(connection, query, condition.values, columns)
