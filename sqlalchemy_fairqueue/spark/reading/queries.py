"""Queries of the readers, and their connections."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.spark.connections import connect, find_installation, translated_errors
from sqlalchemy_fairqueue.spark.reading.arrow import batches, expressions
from sqlalchemy_fairqueue.spark.reading.python_workers import freeze_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg
    import pyarrow as pa

    from sqlalchemy_fairqueue.spark.connections import Installation
    from sqlalchemy_fairqueue.spark.reading.offsets import Position
    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.tables import Column, Table

# To compile a query takes longer than to read a batch.
_SETTINGS = (
    "set jit = off; set client_encoding = 'UTF8'; set default_transaction_read_only = on; "
    "set client_min_messages = warning"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunction of conditions, with their values."""

    clauses: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)

    def also(self, clause: str, **values: object) -> Condition:
        """With one more condition."""
        return Condition((*self.clauses, clause), self.values | values)

    def both(self, other: Condition) -> Condition:
        """With all of another one's conditions."""
        return Condition((*self.clauses, *other.clauses), self.values | other.values)

    @property
    def text(self) -> str:
        """The text after ``where``."""
        return " and ".join(self.clauses) or "true"


@contextmanager
def reading_connection(options: ReadOptions, purpose: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """A connection for reading, outside of a transaction, and the schema as statements quote it; closed afterwards."""
    freeze_modules()
    connection = connect(options, purpose, autocommit=True)
    try:
        yield connection, prepare_connection(connection, options)
    finally:
        connection.close()


def prepare_connection(connection: psycopg.Connection, options: ReadOptions) -> str:
    """Set up a new connection for reading; returns the schema as statements quote it."""
    return in_statements(prepared_installation(connection, options))


def prepared_installation(connection: psycopg.Connection, options: ReadOptions) -> Installation:
    """Set up a new connection for reading; returns the installation that it leads to."""
    with translated_errors("prepare to read"):
        connection.execute(_SETTINGS)
        return find_installation(connection, options.schema)


def in_statements(installation: Installation) -> str:
    """The schema as statements quote it: in those with parameters a percent sign is doubled."""
    return installation.quoted.replace("%", "%%")


def base_condition(table: Table, options: ReadOptions) -> Condition:
    """The condition of the options."""
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


def position_range(condition: Condition, after: Position, upto: Position) -> Condition:
    """The condition with a range of positions: after one, up to another, included."""
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
    """The rows of a condition, as Arrow batches."""
    names = ", ".join(expressions(columns))
    query = " ".join(["select", names, "from", table.source.format(schema=schema), "where", condition.text])
    with translated_errors(f"read table {table.name}"):
        yield from batches(connection, query, condition.values, columns)
