"""Leftovers of a drained worker, as the command line shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.values.reports import Leftovers


def leftovers_document(left: Sequence[Leftovers]) -> list[dict[str, Any]]:
    """Leftovers as a JSON document."""
    return [
        {
            "queue": one.queue,
            "ready": one.ready,
            "scheduled": one.scheduled,
            "held": one.held,
            "leased": one.leased,
            "reasons": [
                {
                    "waits_for": str(reason.reason),
                    "shared_limit": reason.limit,
                    "messages": reason.messages,
                    "channels": reason.channels,
                    "first_at": reason.until,
                }
                for reason in one.reasons
            ],
        }
        for one in left
    ]


def leftovers_texts(left: Sequence[Leftovers]) -> list[Text]:
    """A line a queue, and one for each reason."""
    return [Text(line) for one in left for line in str(one).splitlines()]
