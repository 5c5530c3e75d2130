"""The hook by which those who wait for results hear of them; it needs nothing else of the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine


class ResultWatch(Protocol):
    """The notifications of one database about messages that have ended."""

    @property
    def is_listening(self) -> bool:
        """Whether notifications are sent and arrive just now, as far as is known."""
        ...

    def join(self, engine: Engine | AsyncEngine, message_id: int, wake: Callable[[], None]) -> None:
        """Call *wake*, in another thread, at each notification that may be about a message."""
        ...

    def leave(self, message_id: int, wake: Callable[[], None]) -> None:
        """Call it no more."""
        ...


@dataclass(slots=True)
class Watching:
    """The hook by which listening connections as workers have them serve those who wait for results.

    Attributes:
        watch_of: The watch over the database of an engine. None: there is none, and everybody polls.
    """

    watch_of: Callable[[Engine], ResultWatch] | None = None


watching = Watching()
"""Set by the package itself, which knows ``worker``; ``queue`` does not."""
