"""Reads a history from an Arrow table: its columns, and the attempts of one queue as arrays."""

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

HISTORY = pa.schema({
    "id": pa.int64(), "queue": pa.string(), "channel_id": pa.int64(), "channel": pa.string(), "message_id": pa.int64(),
    "kind": pa.string(), "consumer": pa.string(), "attempt": pa.int32(), "enqueued_at": TIME, "ready_at": TIME,
    "started_at": TIME, "finished_at": TIME, "outcome": pa.string(), "error": pa.string(), "recorded_xid": pa.int64(),
    "cost": pa.int64(), "group": pa.string(),
})  # fmt: skip

COLUMNS = ("queue", "channel_id", "channel", "ready_at", "started_at", "finished_at", "outcome")
"""The columns without which the figures of a history cannot be calculated."""

REPLAYED_COLUMNS = ("id", *COLUMNS[:3], "message_id", "kind", "attempt", "enqueued_at", *COLUMNS[3:])

COST = "cost"
"""The column of an attempt's cost; without it, or if it is null, the cost is 1."""

PRIORITY = "priority"
"""An optional column: the priority that the message was enqueued with, or null."""

OUTCOMES = ("completed", "retried", "released", "buried", "expired", "cancelled")


def check_columns(names: Sequence[str], needed: Sequence[str] = COLUMNS) -> None:
    missing = [name for name in needed if name not in names]
    if missing:
        raise InvalidArgument(
            f"the history lacks {', '.join(missing)}: it has {', '.join(names)}; "
            'read it by read_history, by format("fairqueue") or from an archive'
        )


def queues_of(history: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    names, codes = encoded(history, "queue")
    for code in sorted(range(len(names)), key=names.__getitem__):
        rows = codes == code
        if rows.any():
            yield names[code], history if rows.all() else history.filter(pa.array(rows))


def encoded(table: pa.Table, name: str) -> tuple[list[Any], Any]:
    """Return a column as a list of distinct values, of which some may be unused, and the index of each row's value."""
    column = table[name].combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    return column.dictionary.to_pylist(), column.indices.to_numpy()


def numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column as whole numbers: timestamps in microseconds, nulls as 0."""
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
    """Raise InvalidArgument if a ``channel_id`` has two channel names, as in a history from several databases."""
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
    """The attempts of one queue: an array for each column, times in microseconds.

    Channels are numbered in the order of their ids. ``ids``, ``names`` and ``counts`` have an entry for each channel,
    the other arrays one for each attempt. ``outcome`` is an index of OUTCOMES, or the length of OUTCOMES for any other
    outcome. ``cost`` is None if all attempts cost the same.
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
        # If a clock was set back, a start may be recorded before the ready time, or an end before the start.
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
    if column not in names:
        raise InvalidArgument(f"the history has no column {column!r} of labels: it has {', '.join(names)}")


def last_labels(attempts: pa.Table, column: str) -> LastLabels:
    table = pa.table({
        "channel": attempts["channel"].cast(pa.string()),
        "label": attempts[column].cast(pa.string()),
        "finished_at": attempts["finished_at"],
    }).filter(pc.is_valid(attempts[column]))  # fmt: skip
    rows = table.group_by(["channel", "label"]).aggregate([("finished_at", "max")]).to_pylist()
    return _last((row["channel"], (row["finished_at_max"], row["label"])) for row in rows)


def labels_of(parts: Iterable[LastLabels]) -> dict[str, str]:
    last = _last(item for part in parts for item in part.items())
    labels = {channel: label for channel, (_, label) in sorted(last.items())}
    times = Counter(labels.values())
    return {channel: label if times[label] == 1 else f"{label} ({channel})" for channel, label in labels.items()}


def _last(found: Iterable[tuple[str, tuple[datetime, str]]]) -> LastLabels:
    last: LastLabels = {}
    for channel, label in found:
        last[channel] = max(last.get(channel, label), label)
    return last
