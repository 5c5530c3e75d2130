"""Trace of a history: when messages arrived, and how long each attempt took, without the order of service.

A message arrives when it was enqueued, and is ordered in its channel by the time it became ready; the next attempt of a
message follows the previous one by the recorded delay. An attempt that expired or was released is leased as long as
recorded, and takes no worker. A history does not have priorities, unless a column ``priority``
gives them, nor commit times of enqueues, nor messages without a finished attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.simulation.state import Attempt, Message, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

UNHANDLED = ("expired", "released")
"""Outcomes of attempts that count as not handled: their lease ended, or they were given back."""
PRIORITY = "priority"
"""An optional column of a history: the priority that a message was enqueued with, or null."""

COST = "cost"
"""A column of a history: what the attempt cost. Without it, or where it is null, that is 1."""

COLUMNS = (
    *("id", "queue", "channel_id", "channel", "message_id", "kind"),
    *("attempt", "enqueued_at", "ready_at", "started_at", "finished_at", "outcome"),
)
"""The columns of a history that are read."""


class Trace(NamedTuple):
    """The work of a queue, as input of the simulator.

    Attributes:
        history: The recorded attempts, in the order of *attempts*.
        channels: Names of the channels, in the order of their ids.
        messages: A record array.
        attempts: A record array.
        arrivals: The messages in the order in which they were enqueued.
        begin: When the first attempt began; before, there were no workers.
        channel_of: The number of each attempt's channel.
        ready: When each attempt was ready, as recorded.
        started: When it started, no earlier than that.
        finished: When it finished, no earlier than that.
    """

    history: pa.Table
    channels: list[str]
    messages: Any
    attempts: Any
    arrivals: Numbers
    begin: int
    channel_of: Numbers
    ready: Numbers
    started: Numbers
    finished: Numbers


def trace_of(history: pa.Table) -> Trace:
    """The trace of a queue's history.

    A clock that was set back counts as one that stopped.

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
    attempts["unhandled"] = pc.is_in(history["outcome"], value_set=pa.array(UNHANDLED)).to_numpy()
    attempts["delay"][:-1] = np.where(again, np.maximum(ready[1:] - finished[:-1], 0), 0)

    messages = records(Message, len(first))
    messages["attempt"] = first
    messages["stop"][:-1] = first[1:]
    messages["stop"][-1:] = len(order)
    messages["channel"] = channel_of[first]
    # If earlier attempts of a message are not in the history, it arrives when it became ready for the first one here.
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
        channel_of=channel_of,
        ready=ready,
        started=np.maximum(started, ready),
        finished=np.maximum(np.maximum(finished, started), ready),
    )


def recorded_costs(history: pa.Table) -> pa.Array:
    """The costs of the attempts of a history."""
    if COST not in history.column_names:
        return pa.repeat(1, len(history)).cast(pa.int64())
    return pc.fill_null(history[COST].cast(pa.int64()), 1)


def _numbers(history: pa.Table, name: str) -> Numbers:
    column = history[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    if column.null_count:
        column = pc.fill_null(column.cast(pa.int64()), 0)
    numbers: Numbers = column.cast(pa.int64()).to_numpy()
    return numbers


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
        one, other = (history["channel"][index].as_py() for index in (at, at + 1))
        raise InvalidArgument(
            f"message {message_ids[at]} of queue {queue!r} is in channel {one!r} and in channel "
            f"{other!r}; replay the history of one database at a time"
        )
