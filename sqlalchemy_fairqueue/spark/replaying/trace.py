"""What a history tells of the work itself, whoever was served when: what came when, and how long each attempt took.

A message comes when it was enqueued, and stands in its channel where it became ready; the next attempt of a message
follows the one before by the delay that it had. What a history does not know is left out: priorities, unless a column
``priority`` gives them; when a transaction that enqueued was committed; messages that never had an attempt which ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.spark.replaying.rows import Attempt, Message, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

PRIORITY = "priority"
"""A column that a history may have besides: the priority that a message was enqueued with, or null."""

COLUMNS = (
    *("id", "queue", "channel_id", "channel", "message_id", "kind"),
    *("attempt", "enqueued_at", "ready_at", "started_at", "finished_at", "outcome"),
)
"""What of a history is read."""


class Trace(NamedTuple):
    """The work of a queue, as the simulator takes it.

    Attributes:
        history: The attempts as recorded, in the order of *attempts*.
        channels: Names of the channels, in the order of their ids.
        messages: A record array.
        attempts: A record array.
        arrivals: The messages in the order in which they were enqueued.
        begin: When the first attempt began: before that, there were no workers.
        most: The most attempts that were in consumers' hands at once.
    """

    history: pa.Table
    channels: list[str]
    messages: Any
    attempts: Any
    arrivals: Numbers
    begin: int
    most: int


def trace_of(history: pa.Table) -> Trace:
    """The work that a queue's history tells of.

    A clock that was set back counts as one that stood still.

    Raises:
        InvalidArgument: A row is there twice, or a message is in two channels.
    """
    message_ids, started = _numbers(history, "message_id"), _numbers(history, "started_at")
    ids = _numbers(history, "id")
    order = np.lexsort((ids, started, message_ids))
    history = history.take(pa.array(order))
    message_ids, started, ids = message_ids[order], started[order], ids[order]
    ready, finished = _numbers(history, "ready_at"), _numbers(history, "finished_at")
    channel_of = np.unique(_numbers(history, "channel_id"), return_inverse=True)[1]

    is_first = np.ones(len(order), bool)
    is_first[1:] = message_ids[1:] != message_ids[:-1]
    again = ~is_first[1:]
    _check(history, ids, (channel_of[1:] != channel_of[:-1]) & again, message_ids)

    first = np.flatnonzero(is_first)
    attempts = records(Attempt, len(order))
    attempts["service"] = np.maximum(finished - started, 0)
    attempts["delay"][:-1] = np.where(again, np.maximum(ready[1:] - finished[:-1], 0), 0)

    messages = records(Message, len(first))
    messages["attempt"] = first
    messages["stop"][:-1] = first[1:]
    messages["stop"][-1:] = len(order)
    messages["channel"] = channel_of[first]
    # Where earlier attempts of a message are not in the history, its first one here came when it became ready again.
    is_whole = _numbers(history, "attempt")[first] == 1
    enqueued = np.minimum(_numbers(history, "enqueued_at")[first], ready[first])
    messages["arrives_at"] = np.where(is_whole, enqueued, ready[first])
    messages["due"] = ready[first]
    if PRIORITY in history.column_names:
        priority = _numbers(history, PRIORITY)[first]
        messages["due"] = np.where(is_whole & (priority > 0), -priority, messages["due"])

    _, names_at = np.unique(channel_of, return_index=True)
    return Trace(
        history=history,
        channels=history["channel"].take(pa.array(names_at)).to_pylist(),
        messages=messages,
        attempts=attempts,
        arrivals=np.argsort(messages["arrives_at"], kind="stable"),
        begin=int(started.min()),
        most=_most(started, np.maximum(finished, started)),
    )


def _numbers(history: pa.Table, name: str) -> Numbers:
    column = history[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    if column.null_count:
        column = pc.fill_null(column.cast(pa.int64()), 0)
    numbers: Numbers = column.cast(pa.int64()).to_numpy()
    return numbers


def _most(started: Numbers, finished: Numbers) -> int:
    """The most that were out at once; what ends at an instant makes room for what begins then."""
    begins, ends = np.sort(started), np.sort(finished)
    out = np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, side="right")
    return max(1, int(out.max()))


def _check(history: pa.Table, ids: Numbers, moved: NDArray[np.bool_], message_ids: Numbers) -> None:
    queue = history["queue"][0].as_py()
    in_order = np.sort(ids)
    twice = in_order[1:][in_order[1:] == in_order[:-1]]
    if len(twice):
        raise InvalidArgument(
            f"row {twice[0]} of the history of queue {queue!r} is there more than once; read each row once, and replay "
            "the history of one database at a time"
        )
    if moved.any():
        at = int(np.flatnonzero(moved)[0])
        one, other = (history["channel"][place].as_py() for place in (at, at + 1))
        raise InvalidArgument(
            f"message {message_ids[at]} of queue {queue!r} is in channel {one!r} and in channel "
            f"{other!r}; replay the history of one database at a time"
        )
