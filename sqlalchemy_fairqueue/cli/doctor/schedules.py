"""Schedules that workers cannot run, or that no worker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_SHOWN = 10


def check_schedules(context: CheckContext) -> Iterator[Finding]:
    """Schedules with a problem, and those that have been due for five minutes."""
    rows = context.execute("schedules", queue=context.queue).all()
    failing = [row for row in rows if row.problem is not None]
    overdue = [row for row in rows if row.problem is None]
    for row in failing[:_SHOWN]:
        yield Finding(
            "schedules", Level.WARNING,
            f"schedule {row.name!r} of channel {row.channel!r} of queue {row.queue!r} cannot be run: {row.problem}",
            "correct it by queue.schedules.set or fairqueue schedules set, or remove it by fairqueue schedules remove",
            {"queue": row.queue, "channel": row.channel, "name": row.name},
        )  # fmt: skip
    if len(failing) > _SHOWN:
        yield Finding(
            "schedules", Level.WARNING, f"{plural(len(failing) - _SHOWN, 'further schedule')} cannot be run",
            "see fairqueue schedules list", {"schedules": len(failing)},
        )  # fmt: skip
    if overdue:
        first = overdue[0]
        yield Finding(
            "schedules", Level.WARNING,
            f"{plural(len(overdue), 'schedule')} should have been run by now, such as {first.name!r} of channel "
            f"{first.channel!r} of queue {first.queue!r}",
            "start a worker of the queue, with the code that declares the schedule if that is in code; "
            "remove what is not wanted any more by fairqueue schedules remove",
            {"schedules": len(overdue)},
        )  # fmt: skip
    if not rows:
        yield Finding("schedules", Level.OK, "every schedule is run")
