"""The server: its version, whether it can be written to, its clock, its notifications."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.printing import duration_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

OLDEST_MAJOR = 15
_CLOCK_TOLERANCE = timedelta(seconds=2)
_HALF = 0.5

_SERVER = text(
    "select current_setting('server_version') as version, current_setting('server_version_num')::integer as number, "
    "pg_is_in_recovery() as standby, "
    # The setting of the session: the checks themselves run in read-only transactions.
    "(select s.reset_val = 'on' from pg_settings s where s.name = 'default_transaction_read_only') as read_only, "
    "pg_notification_queue_usage() as notifications"
)
_CLOCK = text("select clock_timestamp()")


def check_server(connection: Connection) -> Iterator[Finding]:
    """Its version, and whether queues can work on it at all."""
    row = connection.execute(_SERVER).one()
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


def check_clock(connection: Connection) -> Iterator[Finding]:
    """How far the clock of this machine is from the server's, which is the one that counts."""
    before = datetime.now(UTC)
    theirs = connection.execute(_CLOCK).scalar_one()
    after = datetime.now(UTC)
    # The server looked at some time between the two: what the round trip explains is no difference.
    ahead = theirs - after if theirs > after else theirs - before if theirs < before else timedelta()
    values = {"server_ahead_seconds": ahead.total_seconds(), "round_trip_seconds": (after - before).total_seconds()}
    if abs(ahead) > _CLOCK_TOLERANCE:
        which = "ahead of" if ahead > timedelta() else "behind"
        yield Finding(
            "clock", Level.WARNING,
            f"the server's clock is {duration_words(abs(ahead))} {which} this machine's",
            "synchronise both (NTP); the queue goes by the server's, so that only enqueue(at=...) of this machine and "
            "times in its logs are off",
            values,
        )  # fmt: skip
    else:
        yield Finding("clock", Level.OK, "the clocks of the server and of this machine agree", None, values)
