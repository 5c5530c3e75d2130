"""Changes of schedules, sent in lock order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.unit_of_work.operations import PauseSchedule, RemoveSchedule, ScheduleChange, SetSchedule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import Target


def change_schedules(connection: Connection, target: Target, changes: Iterable[ScheduleChange]) -> None:
    """Change schedules of one queue, by channel and name; those of one schedule in the order of the calls."""
    for change in sorted(changes, key=lambda one: (one.channel.encode(), one.name.encode())):
        match change:
            case SetSchedule():
                database.set_schedule(connection, target, change.definition)
            case RemoveSchedule():
                database.remove_schedule(connection, target, change.channel, change.name)
            case PauseSchedule():
                database.pause_schedule(connection, target, change.channel, change.name, paused=change.paused)
