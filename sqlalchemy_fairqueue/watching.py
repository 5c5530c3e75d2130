"""The hook by which ``worker`` wakes callers that wait for a result. At run time it imports nothing of the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine


class ResultWatch(Protocol):
    """The notifications of one database, each of which says that a message has ended."""

    @property
    def is_listening(self) -> bool: ...

    def join(self, engine: Engine | AsyncEngine, message_id: int, wake: Callable[[], None]) -> None:
        """Call *wake* in another thread at each notification that may be about the message."""
        ...

    def leave(self, message_id: int, wake: Callable[[], None]) -> None: ...


@dataclass(slots=True)
class Watching:
    """Lets callers that wait for results use the listening connections of ``worker/``.

    *watch_of* returns the watch of an engine's database. While *watch_of* is None, the callers only poll.
    """

    watch_of: Callable[[Engine], ResultWatch] | None = None


watching = Watching()
"""The package's ``__init__`` sets its *watch_of*, since ``queue`` may not import ``worker``."""
