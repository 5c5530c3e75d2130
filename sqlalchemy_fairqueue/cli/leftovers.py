"""Messages that a drained worker left in its queues, with the reasons for which they wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.text import Text

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.errors import clean
from sqlalchemy_fairqueue.figures import channel_waits
from sqlalchemy_fairqueue.values import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue import Queue

CHANNELS = 1000
"""Channels of a queue whose reasons are read; the counts are those of all."""


def leftovers(connection: Connection, queues: Iterable[Queue], worker: str) -> list[dict[str, Any]]:
    """The queues that still hold messages: counts, and how many channels and messages wait for which reason.

    Args:
        connection: Where to ask, by a role that may read statistics.
        queues: The queues of the worker, which has stopped.
        worker: Its name. Its leases may not have ended yet.
    """
    found = []
    for queue in queues:
        stats = queue.stats(connection)
        if not stats.ready + stats.scheduled + stats.leased:
            continue
        channels = queue.channels(connection, busy=True, limit=CHANNELS)
        now = database.now(connection, queue.schema)
        # The worker that has left is not the first reason, but the one where nothing else held them back.
        others = any(one.consumer != worker for one in queue.consumers(connection))
        waits = channel_waits(connection, queue, channels, now, replace(stats, consumers=max(stats.consumers, 1)))
        messages: Counter[tuple[Reason, str | None]] = Counter()
        counted: Counter[tuple[Reason, str | None]] = Counter()
        until: dict[tuple[Reason, str | None], datetime] = {}
        for one in channels:
            if one.scheduled:
                messages[Reason.SCHEDULED, None] += one.scheduled
                counted[Reason.SCHEDULED, None] += 1
            if one.ready and (wait := waits.get(one.channel)):
                is_free = wait.reason in {Reason.CAPACITY, Reason.TURN}
                reason = (Reason.NO_CONSUMER if is_free and not others else wait.reason, wait.limit)
                messages[reason] += one.ready
                counted[reason] += 1
                if wait.until is not None:
                    until[reason] = min(wait.until, until.get(reason, wait.until))
        found.append(
            {
                "queue": queue.name,
                "ready": stats.ready,
                "scheduled": stats.scheduled,
                "leased": stats.leased,
                "reasons": [
                    {
                        "waits_for": str(reason[0]),
                        "shared_limit": reason[1],
                        "messages": count,
                        "channels": counted[reason],
                        "first_at": until.get(reason),
                    }
                    for reason, count in messages.most_common()
                ],
            }
        )
    return found


def leftover_texts(left: Sequence[Mapping[str, Any]]) -> list[Text]:
    """A line a queue, and one for each reason."""
    lines = []
    for one in left:
        counts = ", ".join(f"{one[name]:,} {name}" for name in ("ready", "scheduled", "leased") if one[name])
        lines.append(Text(f"left in queue {clean(one['queue'])}: {counts}"))
        lines.extend(Text(f"  {_reason_text(reason)}") for reason in one["reasons"])
    return lines


def _reason_text(reason: Mapping[str, Any]) -> str:
    name = reason["waits_for"] + (f" {clean(reason['shared_limit'])}" if reason["shared_limit"] else "")
    channels = "1 channel" if reason["channels"] == 1 else f"{reason['channels']:,} channels"
    first = f"; the first may go at {reason['first_at']:%Y-%m-%d %H:%M:%S} UTC" if reason["first_at"] else ""
    return f"{name}: {reason['messages']:,} in {channels}{first}"
