"""Phases of queue work: the locks that a transaction with work of several kinds takes before the work itself.

A single call takes its locks in the right order by itself. A transaction with several calls takes the locks of all its
queues in phases: rows of queues, plans, states of channels, keys, messages by id. Each row is locked in the phase of
its kind, before any call that needs it, so that two transactions never wait for each other in a circle. This module
only locks; it changes no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.unit_of_work.operations import (
    Configuration,
    Configure,
    ConfigureLimit,
    ConfigurePlan,
    EnqueueMessage,
    Limit,
    MakeGroup,
    MessageChange,
    Pause,
    Purge,
    ScheduleChange,
)
from sqlalchemy_fairqueue.values import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import Target

OperationT = TypeVar("OperationT", EnqueueMessage, MakeGroup, Configuration, MessageChange, ScheduleChange)
ConnectedTarget = tuple["Connection", "Target"]
"""A queue and the connection of its calls: targets are equal by what names them."""


def by_queue(
    routed: Iterable[tuple[Connection, OperationT]],
) -> Iterator[tuple[Connection, Target, list[OperationT]]]:
    """Operations by queue, in lock order."""
    groups: dict[ConnectedTarget, list[OperationT]] = {}
    for connection, operation in routed:
        groups.setdefault((connection, operation.target), []).append(operation)
    # Nearly always there is one, and a URL takes time to write.
    for one in sorted(groups, key=_lock_order) if len(groups) > 1 else groups:
        yield one[0], groups[one][0].target, groups[one]


def lock_queues(configurations: Iterable[tuple[Connection, Configuration]]) -> None:
    """Lock the rows of queues whose own configuration changes."""
    for connection, target, group in by_queue(configurations):
        if any(_channel_of(change) is None and not isinstance(change, ConfigureLimit) for change in group):
            target.call("fq_lock_queue", f"lock queue {target.queue!r}").rows(connection)


def lock_plans(configurations: Iterable[tuple[Connection, Configuration]]) -> None:
    """Lock the plans that are changed or removed, and those that channels are put on."""
    for connection, target, group in by_queue(configurations):
        removed = [change.name for change in group if isinstance(change, ConfigurePlan)]
        used = [change.plan for change in group if isinstance(change, Configure) and isinstance(change.plan, str)]
        if removed or used:
            doing = f"lock plans of queue {target.queue!r}"
            target.call("fq_lock_plans", doing, removed=removed, used=used).rows(connection)


def lock_channels(
    configurations: Iterable[tuple[Connection, Configuration]], enqueues: Iterable[tuple[Connection, EnqueueMessage]]
) -> None:
    """Lock the states of channels that are configured, paused, resumed or purged; make those that will be."""
    enqueued = {
        (connection, target): (messages[0].policy, {one.message.channel for one in messages})
        for connection, target, messages in by_queue(enqueues)
    }
    for connection, target, group in by_queue(configurations):
        policy, filled = enqueued.get((connection, target), (None, frozenset[str]()))
        channels: dict[str, ChannelPolicy | None] = {}
        for change in group:
            channel = _channel_of(change)
            if channel is not None and channels.get(channel) is None:
                # The first that would make it brings its policy.
                brought = _brought(change)
                channels[channel] = policy if brought is not None and channel in filled else brought
        if channels:
            database.lock_channels(connection, target, channels)


def leased_messages(configurations: Iterable[tuple[Connection, Configuration]]) -> dict[ConnectedTarget, list[int]]:
    """The leased messages that new limits count and lock, none of which is added to: the gates of queues are closed.

    The states of the channels are held.
    """
    found: dict[ConnectedTarget, list[int]] = {}
    for connection, target, group in by_queue(configurations):
        limited = [
            change.channel
            for change in group
            if isinstance(change, Configure) and change.channel is not None and change.limits_concurrency
        ]
        ids: list[int] = []
        if limited:
            ids += database.leased_without_slot(connection, target, limited)
        if any(
            isinstance(change, Limit) and any(value is not None for value in change.changes.values())
            for change in group
        ):
            # Nobody takes messages without a limit until the transaction ends.
            target.call("fq_lock_gate", f"close the gate of queue {target.queue!r}", limited=None).rows(connection)
            ids += database.leased_without_slot(connection, target, None)
        if ids:
            found[connection, target] = ids
    return found


def lock_messages(
    changes: Iterable[tuple[Connection, MessageChange]], leased: Mapping[ConnectedTarget, list[int]]
) -> None:
    """Lock the messages that new limits count and those that are settled or cancelled, before a change locks others."""
    found = {(connection, target): list(ids) for (connection, target), ids in leased.items()}
    for connection, target, group in by_queue(changes):
        found.setdefault((connection, target), []).extend(change.message_id for change in group)
    for connection, target in sorted(found, key=_lock_order) if len(found) > 1 else found:
        database.lock_messages(connection, target, set(found[connection, target]))


def _lock_order(one: ConnectedTarget) -> tuple[bytes, bytes, str]:
    connection, target = one
    return (target.schema or "").encode(), target.queue.encode(), connection.engine.url.render_as_string()


def _channel_of(change: Configuration) -> str | None:
    return change.channel if isinstance(change, (Configure, Pause, Purge)) else None


def _brought(change: Configuration) -> ChannelPolicy | None:
    if isinstance(change, Configure):
        return change.policy
    return ChannelPolicy() if isinstance(change, Pause) and change.new else None
