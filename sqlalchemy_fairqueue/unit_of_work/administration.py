"""Changes of the configuration and the schedules of one queue, sent in lock order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database.calls import call
from sqlalchemy_fairqueue.unit_of_work.operations import (
    Configure,
    ConfigureLimit,
    ConfigurePlan,
    Limit,
    Pause,
    PauseSchedule,
    Purge,
    RemoveSchedule,
    SetQueue,
    SetSchedule,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import Configuration, ReceiptUpdate, ScheduleChange, Target
    from sqlalchemy_fairqueue.values import PurgeReceipt


def configure(connection: Connection, target: Target, changes: Sequence[Configuration]) -> list[ReceiptUpdate]:
    """Change one queue, in lock order: the settings of the queue, its channels, the limit of the queue.

    Changes of the same channel, or of the queue, keep the order in which the session recorded them.
    """
    updates: list[ReceiptUpdate] = []
    for change in sorted(changes, key=_lock_key):
        notify = change.target.notify
        match change:
            case Configure(channel=None):
                database.configure_queue(connection, target, change.changes, policy=change.policy)
            case Configure(channel=str(channel)):
                database.configure_channel(
                    connection,
                    target,
                    channel,
                    change.changes,
                    policy=change.policy,
                    plan=change.plan,
                    reset=change.reset,
                    notify=notify,
                )
            case ConfigureLimit():
                _change_limit(connection, change)
            case ConfigurePlan():
                _change_plan(connection, change)
            case Limit():
                database.limit_queue(connection, target, change.changes, notify=notify)
            case SetQueue():
                database.set_queue(connection, target, change.changes)
            case Pause():
                _pause(connection, change)
            case Purge():
                doing = f"purge channel {change.channel!r} of queue {target.queue!r}"
                purged = target.call("fq_purge_channel", doing, channel=change.channel).value(connection)
                updates.append(partial(_update, change.receipt, purged))
    return updates


def change_schedules(connection: Connection, target: Target, changes: Iterable[ScheduleChange]) -> None:
    """Change schedules of one queue, by channel and name; those of one schedule in the order of the calls."""
    for change in sorted(changes, key=lambda one: (one.channel.encode(), one.name.encode())):
        channel, name = change.channel, change.name
        match change:
            case SetSchedule():
                database.set_schedule(connection, target, change.definition)
            case RemoveSchedule():
                doing = f"remove schedule {name!r} of channel {channel!r} of queue {target.queue!r}"
                target.call("fq_remove_schedule", doing, channel=channel, name=name).rows(connection)
            case PauseSchedule():
                database.pause_schedule(connection, target, channel, name, paused=change.paused)


def settings_of_queues(
    routed: Iterable[tuple[Connection, Configuration]],
) -> tuple[list[tuple[Connection, Configuration]], list[tuple[Connection, Configuration]]]:
    """The settings of queues, which lock nothing but their rows, of plans and shared limits; and the other changes."""
    own: list[tuple[Connection, Configuration]] = []
    other: list[tuple[Connection, Configuration]] = []
    for connection, change in routed:
        of_queue = (
            isinstance(change, SetQueue)
            or (isinstance(change, (Configure, Pause)) and change.channel is None)
            or (isinstance(change, (ConfigureLimit, ConfigurePlan)) and change.changes is not None)
        )
        (own if of_queue else other).append((connection, change))
    return own, other


def removals(
    routed: Iterable[tuple[Connection, Configuration]],
) -> tuple[list[tuple[Connection, Configuration]], list[tuple[Connection, Configuration]]]:
    """The other changes, and the removals of plans and shared limits, which nothing may use by then."""
    others: list[tuple[Connection, Configuration]] = []
    removed: list[tuple[Connection, Configuration]] = []
    for connection, change in routed:
        is_removal = isinstance(change, (ConfigureLimit, ConfigurePlan)) and change.changes is None
        (removed if is_removal else others).append((connection, change))
    return others, removed


def _change_limit(connection: Connection, change: ConfigureLimit) -> None:
    if change.changes is None:
        # One that does not exist is no error, as below.
        doing = f"remove limit {change.name!r}"
        call(change.target.schema, "fq_remove_limit", doing, name=change.name).rows(connection)
    else:
        database.configure_limit(connection, change.target.schema, change.name, change.changes)


def _change_plan(connection: Connection, change: ConfigurePlan) -> None:
    if change.changes is None:
        doing = f"remove plan {change.name!r} of queue {change.target.queue!r}"
        change.target.call("fq_remove_plan", doing, name=change.name).rows(connection)
    else:
        database.configure_plan(connection, change.target, change.name, change.changes, notify=change.target.notify)


def _pause(connection: Connection, change: Pause) -> None:
    if change.paused:
        database.pause(connection, change.target, change.channel, new=change.new)
    else:
        database.resume(connection, change.target, change.channel, notify=change.target.notify)


def _lock_key(change: Configuration) -> tuple[int, bytes]:
    # The limit on the whole queue locks the leased messages of all channels, whose state rows go before them.
    match change:
        case ConfigureLimit():
            return 0, change.name.encode()
        case ConfigurePlan():
            return 1, change.name.encode()
        case Limit():
            return 3, b""
        case SetQueue():
            return 2, b""
    return 2, (change.channel or "").encode()


def _update(receipt: PurgeReceipt, purged: int) -> None:
    receipt.purged = purged
