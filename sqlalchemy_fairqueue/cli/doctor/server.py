"""Server: its version, whether it takes writes, its clock, its notification queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

OLDEST_MAJOR = 15
_CLOCK_TOLERANCE = timedelta(seconds=2)
_HALF = 0.5


def check_server(context: CheckContext) -> Iterator[Finding]:
    """The version of the server, and whether it takes writes and notifications."""
    row = context.execute("server").one()
    values = {"version": row.version}
    if row.number // 10_000 < OLDEST_MAJOR:
        yield Finding(
            "server", Level.PROBLEM, f"PostgreSQL {row.version} is too old",
            f"upgrade to PostgreSQL {OLDEST_MAJOR} or newer", values,
        )  # fmt: skip
    else:
        yield Finding("server", Level.OK, f"PostgreSQL {row.version}", None, values)
    if row.standby:
        yield Finding(
            "server", Level.PROBLEM, "the server is a standby: nothing can be enqueued or dequeued on it",
            "connect to the primary (target_session_attrs=read-write in the URL)",
        )  # fmt: skip
    elif row.read_only:
        yield Finding(
            "server", Level.PROBLEM, "transactions of this role are read-only by default",
            "set default_transaction_read_only = off for the role or the database",
        )  # fmt: skip
    if row.notifications > _HALF:
        yield Finding(
            "notifications", Level.WARNING,
            f"the notification queue of the server is {row.notifications:.0%} full; when it is full, commits that "
            "notify fail",
            "end the transaction of the session that listens and has been idle in a transaction for long",
            {"usage": row.notifications},
        )  # fmt: skip


def check_clock(context: CheckContext) -> Iterator[Finding]:
    """The difference between the clocks of this machine and of the server; the queue goes by the server's."""
    before = datetime.now(UTC)
    server_time = context.execute("clock").scalar_one()
    after = datetime.now(UTC)
    # The server read its clock between the two: a difference within the round trip counts as none.
    ahead = server_time - after if server_time > after else min(server_time - before, timedelta())
    values = {"server_ahead_seconds": ahead.total_seconds(), "round_trip_seconds": (after - before).total_seconds()}
    if abs(ahead) > _CLOCK_TOLERANCE:
        which = "ahead of" if ahead > timedelta() else "behind"
        yield Finding(
            "clock", Level.WARNING,
            f"the server's clock is {format_duration(abs(ahead))} {which} this machine's",
            "synchronise both (NTP); the queue goes by the server's, so that only enqueue(at=...) of this machine and "
            "times in its logs are off",
            values,
        )  # fmt: skip
    else:
        yield Finding("clock", Level.OK, "the clocks of the server and of this machine agree", None, values)
