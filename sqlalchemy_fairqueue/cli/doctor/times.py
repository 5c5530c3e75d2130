"""Times ahead of the server's clock: it was ahead for a while, and what was used then waits for them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import format_duration, plural
from sqlalchemy_fairqueue.cli.sql_files import pasted
from sqlalchemy_fairqueue.times import duration, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_GRACE = timedelta(minutes=1)
_NOUNS = ("channel", "message", "limit", "plan", "key", "group", "schedule")


def check_times(context: CheckContext) -> Iterator[Finding]:
    """Channels, messages, limits, plans, keys, groups and schedules that were used at times ahead of the clock."""
    found = False
    for row in context.execute("future_times", grace=microseconds(_GRACE), queue=context.queue):
        found = True
        ahead = duration(row.ahead)
        counts = {f"{noun}s": int(getattr(row, f"{noun}s")) for noun in _NOUNS}
        shown = ", ".join(plural(counts[f"{noun}s"], noun) for noun in _NOUNS if counts[f"{noun}s"])
        yield Finding(
            "times", Level.PROBLEM,
            f"queue {row.queue!r} has {shown} with times up to {format_duration(ahead)} ahead of the server's clock, "
            "which was wrong then: they wait for that long",
            "stop the workers, run this, start them again:\n" + "\n".join(repair_statements(context.schema)),
            {"queue": row.queue, **counts, "ahead_seconds": ahead},
        )  # fmt: skip
    if not found:
        yield Finding("times", Level.OK, "nothing was served, enqueued or run at a time that is to come")


def repair_statements(schema: str) -> list[str]:
    """Statements that bring all these times back to now, to be run while no worker runs."""
    return pasted("doctor/queries/future_times_repair.sql", schema)
