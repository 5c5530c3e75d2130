"""What the two kinds of crew share: the buffer, who is at work, and how a delivery leaves their hands."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.decisions import Decision
    from sqlalchemy_fairqueue.worker.fetching import Fetcher
    from sqlalchemy_fairqueue.worker.pace import Pace
    from sqlalchemy_fairqueue.worker.settling import Settler


class CrewBase:
    """Those who call the handlers of one worker.

    Attributes:
        buffer: Deliveries that nobody works on yet; the first is the next.
        running: Deliveries that somebody works on, and since when. Whoever takes one out decides how it ends.
    """

    fetcher: Fetcher
    settler: Settler

    def __init__(self, concurrency: int, pace: Pace) -> None:
        self.buffer: deque[Context] = deque()
        self.running: dict[Context, float] = {}
        self._concurrency = concurrency
        self._pace = pace

    def free(self) -> int:
        """How many could start at once."""
        return self._concurrency - len(self.running)

    def busy(self, now: float) -> float:
        """For how many seconds nobody has been free; zero if somebody is."""
        started = list(self.running.values())
        return now - max(started) if len(started) >= self._concurrency else 0.0

    def leave(self, context: Context, decision: Decision | None) -> None:
        """A handler is done; nothing happens if its delivery was given back meanwhile."""
        started = self.running.pop(context, None)
        if started is None:
            return
        self.settler.end(context, decision)
        self._pace.observe(monotonic() - started)
        fetcher = self.fetcher
        if len(self.buffer) <= fetcher.hungry_at:
            fetcher.ring()
