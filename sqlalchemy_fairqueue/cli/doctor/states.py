"""States of channels, queues and shared limits: channels that are set aside, and states that are there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import plural
from sqlalchemy_fairqueue.cli.sql_files import pasted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext


def check_states(context: CheckContext) -> Iterator[Finding]:
    """Channels that dequeues set aside, and channels, queues and shared limits with more than one state row."""
    found = False
    for row in context.execute("set_aside", queue=context.queue):
        found = True
        yield Finding(
            "states", Level.WARNING,
            f"channel {row.channel!r} of queue {row.queue!r} is paused: {row.problem}",
            "cancel the message, or mend its row as the owner; then resume the channel",
            {"queue": row.queue, "channel": row.channel, "problem": row.problem},
        )  # fmt: skip
    for finding in _repeated(context):
        found = True
        yield finding
    if not found:
        yield Finding(
            "states", Level.OK, "no channel is set aside, and no channel, queue or shared limit has several state rows"
        )


def _repeated(context: CheckContext) -> Iterator[Finding]:
    for row in context.execute("repeated_states", queue=context.queue):
        yield _several(
            context, "repeated_states_repair",
            f"queue {row.queue!r}: {plural(len(row.channel_ids), 'channel')} with several state rows; their limits do "
            "not hold",
            {"queue": row.queue, "channel_ids": list(row.channel_ids)},
        )  # fmt: skip
    for row in context.execute("repeated_queue_states", queue=context.queue):
        yield _several(
            context, "repeated_queue_states_repair",
            f"queue {row.queue!r} has {row.rows} state rows; its limit does not hold",
            {"queue": row.queue, "rows": row.rows},
        )  # fmt: skip
    for row in context.execute("repeated_limit_states", queue=context.queue):
        rows = f"rows for queue {row.share_of!r}" if row.share_of else "state rows"
        yield _several(
            context, "repeated_limit_states_repair",
            f"shared limit {row.limit_name!r} has {row.rows} {rows}; it does not hold",
            {"limit": row.limit_name, "rows": row.rows},
        )  # fmt: skip


def _several(context: CheckContext, repair: str, message: str, values: Mapping[str, Any]) -> Finding:
    remedy = "somebody has inserted rows; let the state be made anew, as the owner:\n"
    statements = "\n".join(pasted(f"doctor/queries/{repair}.sql", context.schema))
    return Finding("states", Level.PROBLEM, message, remedy + statements, values)
