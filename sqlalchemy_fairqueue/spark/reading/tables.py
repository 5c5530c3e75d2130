"""The tables that Spark can read: their columns with Spark types and SQL expressions.

The server sends rows as text, and Arrow parses them without a Python object for each value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sqlalchemy_fairqueue.reporting.columns import HISTORY as HISTORY_COLUMNS
from sqlalchemy_fairqueue.reporting.columns import TIME
from sqlalchemy_fairqueue.reporting.copying import copied_text, parsed
from sqlalchemy_fairqueue.spark.errors import BadFrame, BadOption
from sqlalchemy_fairqueue.values.fields import Count, Duration, RateOf
from sqlalchemy_fairqueue.values.policies import POLICY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import psycopg

_LONG, _INTEGER, _STRING, _BOOLEAN = LongType(), IntegerType(), StringType(), BooleanType()
_INSTANT, _BINARY, _DURATION = TimestampType(), BinaryType(), DayTimeIntervalType()
_ARROW: dict[DataType, pa.DataType] = {
    from_arrow_type(kind): kind
    for kind in (pa.string(), pa.int64(), pa.int32(), pa.bool_(), pa.binary(), TIME, pa.duration("us"))
}


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column. The server sends instants and durations as microseconds, and binaries as hexadecimal digits.

    Attributes:
        sql: The expression of the column; empty in the table of changes, which is read from the WAL.
        nullable: Whether the column may be null. If so, a user's schema that forbids nulls raises BadFrame.
        since: The name of another column of instants, which is never null. If both columns are read, the server sends
            the difference between their instants instead of this column's instant.
    """

    name: str
    type: DataType
    sql: str = ""
    nullable: bool = True
    since: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table as Spark sees it, and how the server reads it. The table of changes has only *name* and *columns*.

    Attributes:
        source: The table in the from clause; ``{schema}`` is the quoted schema. *joins* is the rest of the clause.
        key: The expression by whose value rows are split among tasks.
        queue: The expression of the queue's name; *channel* is the expression of the channel's name.
    """

    name: str
    columns: tuple[Column, ...]
    source: str = ""
    key: str = ""
    queue: str = ""
    channel: str = ""
    joins: str = ""


def _plain(alias: str, **types: DataType) -> list[Column]:
    return [Column(name, kind, f"{alias}.{name}") for name, kind in types.items()]


def _policy(alias: str) -> list[Column]:
    types: dict[str, DataType] = {}
    for name, definition in POLICY.items():
        match definition:
            case RateOf():
                types |= zip(definition.columns(name), (_DURATION, _INTEGER, _STRING), strict=True)
            case Duration():
                types[name] = _DURATION
            case Count():
                types[name] = _INTEGER
            case _:
                types[name] = _STRING
    return _plain(alias, **types)


HISTORY = Table(
    "history",
    tuple(
        Column(
            one.name,
            from_arrow_type(one.type),
            "h.group_id::text" if one.name == "group" else f"h.{one.name}",
            nullable=one.name in {"consumer", "error", "group"},
            since="enqueued_at" if one.name in {"ready_at", "started_at", "finished_at"} else None,
        )
        for one in HISTORY_COLUMNS
    ),
    "{schema}.fq_history h",
    key="h.id",
    queue="h.queue",
    channel="h.channel",
)
CHANGES = Table(
    "changes",
    (
        Column("lsn", _LONG, nullable=False),
        Column("committed_at", _INSTANT, nullable=False),
        Column("change", _STRING, nullable=False),
        Column("message_id", _LONG, nullable=False),
        *(Column(name, _STRING) for name in ("outcome", "queue")),
        Column("channel_id", _LONG),
        *(Column(name, _STRING) for name in ("channel", "kind", "key")),
        *(Column(name, _INSTANT) for name in ("enqueued_at", "due_at")),
        *(Column(name, _LONG) for name in ("priority", "cost")),
        Column("group", _STRING),
    ),
)
_TABLES = (
    HISTORY,
    CHANGES,
    Table(
        "messages",
        (
            *_plain("m", id=_LONG),
            Column("queue", _STRING, "c.queue"),
            *_plain("m", channel_id=_LONG),
            Column("channel", _STRING, "c.name"),
            *_plain("m", kind=_STRING, content=_BINARY, headers=_STRING, key=_STRING, enqueued_at=_INSTANT),
            Column("due_at", _INSTANT, "case when m.dequeue_at >= 0 then m.dequeue_at end"),
            Column("priority", _LONG, "m.priority::bigint"),
            *_plain("m", attempts=_INTEGER, max_attempts=_INTEGER, deliveries=_INTEGER, lease_id=_LONG),
            *_plain("m", cancelled=_BOOLEAN, error=_STRING),
            Column("cost", _INTEGER, "coalesce(m.cost, 1)"),
            Column("group", _STRING, "m.group_id::text"),
        ),
        "{schema}.fq_message m",
        key="m.id",
        queue="c.queue",
        channel="c.name",
        joins="left join {schema}.fq_channel c on c.id = m.channel_id",
    ),
    Table(
        "channels",
        (
            *_plain("c", id=_LONG, queue=_STRING),
            Column("channel", _STRING, "c.name"),
            *_policy("s"),
            *_plain("s", current_concurrency=_INTEGER),
            *_plain("s", backlog=_LONG, dropped=_LONG, paused_at=_INSTANT),
            *_plain("p", plan=_STRING),
        ),
        "{schema}.fq_channel c",
        key="c.id",
        queue="c.queue",
        channel="c.name",
        joins="cross join lateral (select * from {schema}.fq_channel_state s "
        "where s.channel_id = c.id order by s.channel_id desc, s.row_version desc limit 1) s "
        "left join {schema}.fq_channel_plan p on p.channel_id = c.id",
    ),
    Table(
        "dead_letters",
        (
            *_plain("d", message_id=_LONG, queue=_STRING, channel_id=_LONG),
            Column("channel", _STRING, "c.name"),
            *_plain("d", kind=_STRING, content=_BINARY, headers=_STRING, key=_STRING, enqueued_at=_INSTANT),
            *_plain("d", attempts=_INTEGER, max_attempts=_INTEGER, deliveries=_INTEGER, reason=_STRING),
            *_plain("d", error=_STRING, died_at=_INSTANT),
        ),
        "{schema}.fq_dead_letter d",
        key="d.message_id",
        queue="d.queue",
        channel="c.name",
        joins="left join {schema}.fq_channel c on c.id = d.channel_id",
    ),
)


def table_named(name: str) -> Table:
    return next(table for table in _TABLES if table.name == name)


def frame_schema(table: Table, names: Sequence[str]) -> StructType:
    known = {column.name: column for column in table.columns}
    for name in names:
        if name not in known:
            raise BadOption(f"option columns names {name!r}; table {table.name} has {', '.join(known)}")
    if len(set(names)) < len(names):
        raise BadOption(f"option columns names a column twice: {', '.join(names)}; give each once")
    return StructType([StructField(name, known[name].type, known[name].nullable) for name in names or known])


def frame_columns(table: Table, schema: StructType) -> tuple[Column, ...]:
    """Return the table's columns that a frame's schema names; raise BadFrame if the schema does not fit the table."""
    known = {column.name: column for column in table.columns}
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise BadFrame(f"the schema has column {field.name!r}; table {table.name} has {', '.join(known)}")
        if field.dataType != column.type:
            raise BadFrame(
                f"the schema has column {field.name!r} as {field.dataType.simpleString()}, and table {table.name} has "
                f"it as {column.type.simpleString()}; give that, and cast the frame"
            )
        if column.nullable and not field.nullable:
            raise BadFrame(
                f"the schema has column {field.name!r} as never null, and table {table.name} has nulls in it; "
                "give it as nullable"
            )
    if not schema.fields:
        raise BadFrame(f"the schema has no columns; give some of {', '.join(known)}")
    return tuple(replace(known[field.name], nullable=field.nullable) for field in schema.fields)


def batches(
    connection: psycopg.Connection, query: str, parameters: Mapping[str, object], columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query, in batches of about four megabytes of text, at least one row each.

    The query selects the :func:`expressions` of the columns. See :func:`copied_text` for the connection.
    """
    schema = arrow_schema(columns)
    since = {one.name: base.name for one in columns if (base := _base(one, columns))}
    # With chunks of one megabyte instead of four, Spark takes a quarter longer. Threads would not help: the tasks use
    # all cores already.
    for chunk in copied_text(connection, query, parameters):
        yield parsed(chunk, schema, since, use_threads=False)


def expressions(columns: Sequence[Column]) -> list[str]:
    return [_expression(column, _base(column, columns)) for column in columns]


def _expression(column: Column, base: Column | None) -> str:
    if column.type == BinaryType():
        return f"encode({column.sql}, 'hex')"
    # A difference has fewer digits to write, to send and to read.
    return f"{column.sql} - {base.sql}" if base else column.sql


def _base(column: Column, columns: Sequence[Column]) -> Column | None:
    return next((one for one in columns if one.name == column.since), None)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(one.name, _ARROW[one.type], nullable=one.nullable) for one in columns])
