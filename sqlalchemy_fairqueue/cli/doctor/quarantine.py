"""Rows that are out of order: messages in quarantine, and several states of a channel, a queue or a shared limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import plural
from sqlalchemy_fairqueue.cli.installation import queue_names
from sqlalchemy_fairqueue.cli.sql_files import pasted
from sqlalchemy_fairqueue.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_MOST = 1000
_SHOWN = 10


def check_quarantine(context: CheckContext) -> Iterator[Finding]:
    """Messages that dequeues set aside, and channels, queues and shared limits with more than one state row."""
    found = False
    for name in queue_names(context.connection, context.schema):
        if context.queue not in {None, name}:
            continue
        messages = Queue(name, schema=context.schema).quarantined(context.connection, limit=_MOST)
        if messages:
            found = True
            ids = [one.message_id for one in messages]
            yield Finding(
                "quarantine", Level.WARNING,
                f"queue {name!r}: {plural(len(ids), 'message')} in quarantine, which could not be delivered: "
                f"{', '.join(map(str, ids[:_SHOWN]))}{', ...' if len(ids) > _SHOWN else ''}; "
                f"message {ids[0]}: {messages[0].reason}",
                "see fairqueue dead quarantine; restore what is lost from a backup, and release or delete them",
                {"queue": name, "message_ids": ids},
            )  # fmt: skip
    for finding in _repeated(context):
        found = True
        yield finding
    if not found:
        yield Finding(
            "quarantine",
            Level.OK,
            "no message is in quarantine, and no channel, queue or shared limit has several state rows",
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
        rows = "state rows" if row.share_of is None else f"rows for queue {row.share_of!r}"
        yield _several(
            context, "repeated_limit_states_repair",
            f"shared limit {row.limit_name!r} has {row.rows} {rows}; it does not hold",
            {"limit": row.limit_name, "rows": row.rows},
        )  # fmt: skip


def _several(context: CheckContext, repair: str, message: str, values: Mapping[str, Any]) -> Finding:
    remedy = "somebody has inserted rows; let the state be made anew, as the owner:\n"
    statements = "\n".join(pasted(f"doctor/queries/{repair}.sql", context.schema))
    return Finding("quarantine", Level.PROBLEM, message, remedy + statements, values)
