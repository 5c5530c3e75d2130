"""Reads changes of messages as a stream: each change is in exactly one micro-batch, in commit order.

The server decodes changes from its WAL for a replication slot. A micro-batch has all transactions whose commits end
between two positions, so that it can be read again after a failure. Only ``commit`` moves the slot; Spark calls
``commit`` with an offset when it will not read anything before the offset again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sqlalchemy_fairqueue.spark.connections import connect, query, translated_errors
from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.executors import freeze_modules
from sqlalchemy_fairqueue.spark.reading.changes import rows
from sqlalchemy_fairqueue.spark.reading.offsets import (
    ChangeOffset,
    OriginChanged,
    change_offset_of,
    refuse_origin,
)
from sqlalchemy_fairqueue.spark.reading.queries import horizon, note_loss, prepared_installation, reading_connection
from sqlalchemy_fairqueue.spark.reading.readers import LIMITS_ARE_KNOWN, Follower, ReadMaxRows
from sqlalchemy_fairqueue.spark.reading.slot import (
    advance,
    check_publications,
    lsn_text,
    messages,
    next_end,
    slot_state,
)
from sqlalchemy_fairqueue.spark.reading.tables import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeVar

    import psycopg

    from sqlalchemy_fairqueue.spark.connections import Installation
    from sqlalchemy_fairqueue.spark.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.changes import Row
    from sqlalchemy_fairqueue.spark.reading.slot import SlotState
    from sqlalchemy_fairqueue.spark.reading.tables import Column

    T = TypeVar("T")

_BATCH_ROWS = 10_000


def _name_channels(rows: Sequence[Row], options: ReadOptions, known: dict[int, tuple[str, str]]) -> None:
    """Set queue and channel in rows that have the channel's id but not its name, unless the channel was forgotten."""
    unnamed = [row for row in rows if row.get("channel") is None and row.get("channel_id") is not None]
    unknown = {row["channel_id"] for row in unnamed} - known.keys()
    if unknown:
        with (
            reading_connection(options, "channel names") as (connection, schema),
            translated_errors("read the names of channels"),
        ):
            found = query(connection, "channel_names", {"ids": list(unknown)}, schema=schema)
        known |= {identity: (queue, name) for identity, queue, name in found}
    for row in unnamed:
        if (names := known.get(row["channel_id"])) is not None:
            row["queue"], row["channel"] = names


def change_batches(rows: Iterator[Row], options: ReadOptions, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows that match the options queue and channels. A null in either column matches any option."""
    layout = arrow_schema(columns)
    queues, channels = (None, options.queue), {None, *options.channels}
    known: dict[int, tuple[str, str]] = {}
    while some := list(islice(rows, _BATCH_ROWS)):
        _name_channels(some, options, known)
        if options.queue is not None:
            some = [row for row in some if row.get("queue") in queues]
        if options.channels:
            some = [row for row in some if row.get("channel") in channels]
        if some:
            arrays = [pa.array([row.get(one.name) for row in some], one.type) for one in layout]
            yield pa.RecordBatch.from_arrays(arrays, schema=layout)


_CHANGES = 100_000
# After this much WAL without a change of a message, an empty micro-batch moves the offset on, so that the server can
# remove the WAL.
_PASSED_BYTES = 16 << 20
# After a look that finds no changes, the reader rests for this multiple of the time that the look took, since each look
# decodes the WAL of all databases.
_REST = 4


@dataclass
class ChangePartition(InputPartition):
    """The transactions of a micro-batch. One task reads all: a replication slot has one reader at a time."""

    after: ChangeOffset
    upto: int


class ChangeReader(Follower):
    """Reads the table ``changes`` as a stream from a replication slot."""

    follows = "changes"

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        if not LIMITS_ARE_KNOWN:
            raise BadOption(
                "table 'changes' needs PySpark 4.2 or later, which tells a source where a micro-batch begins; upgrade "
                "PySpark, or follow the history"
            )
        self._options = options
        self._slot = options.slot or ""
        self._columns = columns
        self._installation: Installation | None = None
        self._target: int | None = None
        self._insert = 0
        self._looked_upto = 0
        self._rest_until = 0.0
        self._reached: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._query(lambda connection: self._offset(connection, self._state(connection).confirmed).as_dict())

    def latestOffset(self, start: dict[str, Any], limit: object = None) -> dict[str, Any]:  # noqa: N802
        return self._query(lambda connection: self._end(connection, start, limit))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return ReadMaxRows(self._options.max_offsets_per_trigger or _CHANGES)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._query(lambda connection: self._state(connection).insert)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        reached = self._reached
        if reached is None:
            return None
        state = self._query(self._state)
        kept = state.insert - state.restart
        return {"lsn": state.insert, "unread_bytes": max(0, state.insert - reached), "kept_bytes": kept}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = change_offset_of(start), change_offset_of(end)
        self._reached = last.lsn
        self._query(lambda connection: self._check(connection, self._known, first))
        return [ChangePartition(ChangeOffset(last.origin, first.lsn), last.lsn)] if first.lsn < last.lsn else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangePartition)  # noqa: S101 - Spark gives what partitions() gave
        freeze_modules()
        connection = connect(self._options, "stream read", autocommit=True)
        try:
            with translated_errors("read changes"):
                installation = prepared_installation(connection, self._options)
                self._check(connection, installation, partition.after)
                found = rows(messages(connection, self._slot, partition.upto), partition.after.lsn, partition.upto)
                yield from change_batches(found, self._options, self._columns)
                self._check(connection, installation, partition.after)
        finally:
            connection.close()

    def commit(self, end: dict[str, Any]) -> None:
        reached = change_offset_of(end).lsn

        def move(connection: psycopg.Connection) -> None:
            if self._state(connection).confirmed < reached:
                advance(connection, self._slot, reached)

        self._query(move)

    def _end(self, connection: psycopg.Connection, start: dict[str, Any], limit: object) -> dict[str, Any]:
        first = change_offset_of(start)
        self._reached = first.lsn
        state = self._check(connection, self._known, first)
        before, self._insert = self._insert, state.insert
        if state.flushed == self._looked_upto or time.monotonic() < self._rest_until:
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begun = time.monotonic()
        end = next_end(connection, self._slot, first.lsn, most, self._target)
        if end is not None:
            return self._offset(connection, end).as_dict()
        self._looked_upto = state.flushed
        self._rest_until = time.monotonic() + _REST * (time.monotonic() - begun)
        # The ends of records that the look has passed; ``flushed`` itself may lie within a record.
        ends = [one for one in (self._target, before, state.insert) if one is not None and one <= state.flushed]
        passed = max((one for one in ends if self._target is None or one <= self._target), default=0)
        # An unchanged offset is returned unchanged: Spark takes any other text for new data.
        return self._offset(connection, passed).as_dict() if passed - first.lsn >= _PASSED_BYTES else start

    def _check(self, connection: psycopg.Connection, installation: Installation, start: ChangeOffset) -> SlotState:
        """Return the state of the replication slot, after a check that the stream can go on from *start*."""
        found = horizon(connection, installation.quoted)
        refuse_origin(start.origin, found.origin, self._options.accepted_origin, lsn_text(start.lsn))
        state = slot_state(connection, self._slot, installation.schema)
        if start.lsn > state.insert:
            # Without this error, new commits would count as read until the WAL reaches the offset.
            raise OriginChanged(
                f"the offset is at {lsn_text(start.lsn)}, and the WAL of the server has only come to "
                f"{lsn_text(state.insert)}: it was put back to an earlier state, or a standby that lacked the last "
                "transactions was promoted; begin anew (another checkpoint)",
                offset_origin=start.origin,
                found_origin=found.origin,
            )
        if state.confirmed > start.lsn:
            lost = (
                f"replication slot {self._slot!r} was moved to {lsn_text(state.confirmed)}, and the stream has read up "
                f"to {lsn_text(start.lsn)}: changes between them are lost"
            )
            note_loss(self._options, lost, "let nothing else move the slot, which is for one stream")
        return state

    def _state(self, connection: psycopg.Connection) -> SlotState:
        return slot_state(connection, self._slot, self._known.schema)

    def _offset(self, connection: psycopg.Connection, position: int) -> ChangeOffset:
        return ChangeOffset(horizon(connection, self._known.quoted).origin, position)

    @property
    def _known(self) -> Installation:
        assert self._installation is not None  # noqa: S101 - _query() has found it
        return self._installation

    def _prepare(self, connection: psycopg.Connection) -> None:
        self._installation = prepared_installation(connection, self._options)
        # The slot is checked first, since the error for a missing slot shows how to create slot and publications.
        slot_state(connection, self._slot, self._installation.schema)
        check_publications(connection, self._slot, self._installation.schema)
