"""Reasons of waits on the screen and in documents, with who has what is waited for."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.reports import Wait


def wait_cells(wait: Wait | None) -> tuple[str | None, str | None]:
    """The reason for which something waits, and the holders of what it waits for."""
    if wait is None:
        return None, None
    reason = str(wait.reason) if wait.limit is None else f"{wait.reason} {wait.limit}"
    if wait.behind is not None:
        reason = f"behind message {wait.behind} of its {wait.reason}"
    return reason, ", ".join(_takers(wait)) or None


def _takers(wait: Wait) -> list[str]:
    """The holders of what something waits for, the other queues of a shared limit first."""
    queues = [f"queue {one.queue}: {one.leased:,}" for one in wait.queues if one.leased]
    return queues + [f"{one.channel}: {one.leased:,}" for one in wait.takers]


def wait_document(wait: Wait | None) -> dict[str, Any]:
    """The reason for which something waits, as members of a document."""
    return {
        "waits_for": str(wait.reason) if wait else None,
        "waits_until": wait.until if wait else None,
        "shared_limit": wait.limit if wait else None,
        "taken_by": [asdict(one) for one in wait.takers] if wait else [],
        "taken_by_queues": [asdict(one) for one in wait.queues] if wait else [],
    }
