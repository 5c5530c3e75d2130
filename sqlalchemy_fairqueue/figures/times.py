"""Ages: times since an instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta


def age(since: datetime | None, now: datetime) -> timedelta | None:
    """The time since then, never negative. None: there is no such instant."""
    return max(now - since, now - now) if since else None
