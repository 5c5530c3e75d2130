"""Columns of a history in an Arrow table, and the attempts of one queue as arrays."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.errors import mixed_history

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    LastLabels = dict[str, tuple[datetime, str]]

TIME = pa.timestamp("us", "UTC")
"""The type of instants."""

HISTORY = pa.schema({
    "id": pa.int64(), "queue": pa.string(), "channel_id": pa.int64(), "channel": pa.string(), "message_id": pa.int64(),
    "kind": pa.string(), "consumer": pa.string(), "attempt": pa.int32(), "enqueued_at": TIME, "ready_at": TIME,
    "started_at": TIME, "finished_at": TIME, "outcome": pa.string(), "error": pa.string(), "recorded_xid": pa.int64(),
    "cost": pa.int64(), "group": pa.string(),
})  # fmt: skip
"""All columns of a history."""

COLUMNS = ("queue", "channel_id", "channel", "ready_at", "started_at", "finished_at", "outcome")
"""The columns of a history that are measured."""

REPLAYED_COLUMNS = ("id", *COLUMNS[:3], "message_id", "kind", "attempt", "enqueued_at", *COLUMNS[3:])
"""The columns of a history that are replayed."""

COST = "cost"
"""A column of a history: what the attempt cost. Without it, or where it is null, that is 1."""

PRIORITY = "priority"
"""An optional column of a history: the priority that a message was enqueued with, or null."""

OUTCOMES = ("completed", "retried", "released", "buried", "expired", "cancelled")


def check_columns(names: Sequence[str], needed: Sequence[str] = COLUMNS) -> None:
    """Refuse a table that lacks columns of a history, with InvalidArgument."""
    missing = [name for name in needed if name not in names]
    if missing:
        raise InvalidArgument(
            f"the history lacks {', '.join(missing)}: it has {', '.join(names)}; "
            'read it by read_history, by format("fairqueue") or from an archive'
        )


def queues_of(history: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the queues of a history by name, each with its rows."""
    names, codes = encoded(history, "queue")
    for code in sorted(range(len(names)), key=names.__getitem__):
        rows = codes == code
        if rows.any():
            yield names[code], history if rows.all() else history.filter(pa.array(rows))


def encoded(table: pa.Table, name: str) -> tuple[list[Any], Any]:
    """Return the different values of a column, and for each row the index of its value."""
    column = table[name].combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    return column.dictionary.to_pylist(), column.indices.to_numpy()


def numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column of whole numbers, or of timestamps in microseconds; nulls become 0."""
    column = table[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    column = column.cast(pa.int64())
    found: Numbers = (pc.fill_null(column, 0) if column.null_count else column).to_numpy()
    return found


def recorded_costs(history: pa.Table) -> pa.Array:
    if COST not in history.column_names:
        return pa.repeat(1, len(history)).cast(pa.int64())
    return pc.fill_null(history[COST].cast(pa.int64()), 1)


def check_ids(rows: pa.Table) -> None:
    """Refuse a queue in which an id belongs to two channels, with InvalidArgument."""
    ids, of_id = encoded(rows, "channel_id")
    names, of_name = encoded(rows, "channel")
    name_of = np.zeros(len(ids), np.int64)
    name_of[of_id] = of_name
    wrong = name_of[of_id] != of_name
    if wrong.any():
        row = int(wrong.argmax())
        queue: str = rows["queue"][0].as_py()
        one, other = sorted((names[name_of[of_id[row]]], names[of_name[row]]))
        raise InvalidArgument(mixed_history(ids[of_id[row]], (queue, one), (queue, other)))


class QueueAttempts:
    """The attempts of one queue, an array for each column; channels are numbered in the order of their ids.

    Attributes:
        ids: Ids of the channels.
        names: Names of the channels.
        counts: Attempts of each channel.
        channel: The channel number of each attempt.
        ready: When each was ready, in microseconds, as *started* and *finished*.
        wait: From ready to started.
        service: From started to finished.
        outcome: The index of the outcome in OUTCOMES; the next number for any other.
        cost: The cost of each; None: all cost the same.
        begin: The least of *ready*.
        end: The greatest of *finished*.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.queue: str = rows["queue"][0].as_py()
        ids, of_id = encoded(rows, "channel_id")
        order = np.argsort(ids)
        self.ids: list[int] = [ids[number] for number in order]
        rank = np.empty(len(ids), np.int32)
        rank[order] = np.arange(len(ids))
        self.channel = rank[of_id]
        names, of_name = encoded(rows, "channel")
        name_of = np.zeros(len(ids), np.int64)
        name_of[self.channel] = of_name
        self.names: list[str] = [names[number] for number in name_of]
        self.counts = np.bincount(self.channel, minlength=len(ids))
        ready, started = numbers(rows, "ready_at"), numbers(rows, "started_at")
        # A clock that was set back must not reverse time: a later event counts as not earlier.
        started = np.maximum(started, ready)
        finished = np.maximum(started, numbers(rows, "finished_at"))
        self.ready, self.started, self.finished = ready, started, finished
        self.wait, self.service = started - ready, finished - started
        outcomes, of_outcome = encoded(rows, "outcome")
        codes = [OUTCOMES.index(one) if one in OUTCOMES else len(OUTCOMES) for one in outcomes]
        self.outcome = np.array(codes, np.int8)[of_outcome]
        self.cost: Numbers | None = None
        if COST in rows.column_names:
            cost: Numbers = recorded_costs(rows).to_numpy()
            self.cost = cost if int(cost.min()) != int(cost.max()) else None
        self.begin, self.end = int(ready.min()), int(finished.max())

    @property
    def channels(self) -> int:
        return len(self.ids)


def check_label_column(column: str, names: Sequence[str]) -> None:
    """Refuse a column of labels that the history lacks, with InvalidArgument."""
    if column not in names:
        raise InvalidArgument(f"the history has no column {column!r} of labels: it has {', '.join(names)}")


def last_labels(attempts: pa.Table, column: str) -> LastLabels:
    """Return the label of each channel's last attempt that has one, with the end of that attempt.

    *attempts* has the columns channel and finished_at; labels are converted to text.
    """
    table = pa.table({
        "channel": attempts["channel"].cast(pa.string()),
        "label": attempts[column].cast(pa.string()),
        "finished_at": attempts["finished_at"],
    }).filter(pc.is_valid(attempts[column]))  # fmt: skip
    rows = table.group_by(["channel", "label"]).aggregate([("finished_at", "max")]).to_pylist()
    return _last((row["channel"], (row["finished_at_max"], row["label"])) for row in rows)


def labels_of(parts: Iterable[LastLabels]) -> dict[str, str]:
    """Return the labels of channels, from the parts of a history; a label that several channels share gets the channel.

    Channels without a label are left out.
    """
    last = _last(item for part in parts for item in part.items())
    labels = {channel: label for channel, (_, label) in sorted(last.items())}
    times = Counter(labels.values())
    return {channel: label if times[label] == 1 else f"{label} ({channel})" for channel, label in labels.items()}


def _last(found: Iterable[tuple[str, tuple[datetime, str]]]) -> LastLabels:
    last: LastLabels = {}
    for channel, label in found:
        last[channel] = max(last.get(channel, label), label)
    return last
