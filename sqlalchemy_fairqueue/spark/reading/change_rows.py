"""Rows of table ``changes`` for Spark: with the names of their channels, filtered by the options, as Arrow batches."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from sqlalchemy_fairqueue.spark.connections import translated_errors
from sqlalchemy_fairqueue.spark.reading.arrow import arrow_type
from sqlalchemy_fairqueue.spark.reading.queries import reading_connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy_fairqueue.spark.reading.changes import Row
    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.tables import Column

_BATCH_ROWS = 10_000
_NAMES = "select c.id, c.queue, c.name from {schema}.fq_channel c where c.id = any(%(ids)s)"


class ChannelNames:
    """Queues and names of channels, read on a connection of its own: the one of the slot is busy."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._stack = ExitStack()
        self._known: dict[int, tuple[str, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add_to(self, rows: Sequence[Row]) -> None:
        """Name the channels of rows that have only its id; not those that were forgotten since."""
        unnamed = [row for row in rows if row.get("channel") is None and row.get("channel_id") is not None]
        unknown = {row["channel_id"] for row in unnamed} - self._known.keys()
        if unknown:
            connection, schema = self._stack.enter_context(reading_connection(self._options, "channel names"))
            with translated_errors("read the names of channels"):
                found = connection.execute(_NAMES.format(schema=schema).encode(), {"ids": list(unknown)}).fetchall()
            self._stack.close()
            self._known |= {identity: (queue, name) for identity, queue, name in found}
        for row in unnamed:
            if (names := self._known.get(row["channel_id"])) is not None:
                row["queue"], row["channel"] = names


def change_batches(rows: Iterator[Row], options: ReadOptions, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """The rows in batches. A row whose queue or channel is unknown is of every queue and channel."""
    layout = pa.schema([pa.field(one.name, arrow_type(one.type), nullable=one.nullable) for one in columns])
    queues, channels = (None, options.queue), {None, *options.channels}
    with ChannelNames(options) as names:
        while some := list(islice(rows, _BATCH_ROWS)):
            names.add_to(some)
            if options.queue is not None:
                some = [row for row in some if row.get("queue") in queues]
            if options.channels:
                some = [row for row in some if row.get("channel") in channels]
            if some:
                arrays = [pa.array([row.get(one.name) for row in some], one.type) for one in layout]
                yield pa.RecordBatch.from_arrays(arrays, schema=layout)
