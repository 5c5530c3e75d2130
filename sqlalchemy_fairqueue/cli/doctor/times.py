"""Times ahead of the server's clock: it was ahead for a while, and channels that were served then wait for them."""

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


def check_times(context: CheckContext) -> Iterator[Finding]:
    """Channels that were served, and messages that were enqueued, at times ahead of the clock."""
    found = False
    for row in context.execute("future_times", grace=microseconds(_GRACE), queue=context.queue):
        found = True
        ahead = duration(row.ahead)
        yield Finding(
            "times", Level.PROBLEM,
            f"queue {row.queue!r}: {plural(row.channels, 'channel')} served and "
            f"{plural(int(row.messages), 'message')} enqueued up to {format_duration(ahead)} ahead of the server's "
            "clock, which was wrong then: they wait for that long",
            "stop the workers, run this, start them again:\n" + "\n".join(repair_statements(context.schema)),
            {"queue": row.queue, "channels": row.channels, "messages": int(row.messages), "ahead_seconds": ahead},
        )  # fmt: skip
    if not found:
        yield Finding("times", Level.OK, "no channel was served and no message enqueued at a time that is to come")


def repair_statements(schema: str) -> list[str]:
    """Statements that bring leases, messages and channels back to now, to be run while no worker runs."""
    return pasted("doctor/queries/future_times_repair.sql", schema)
