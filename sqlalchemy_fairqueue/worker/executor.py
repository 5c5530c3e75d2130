"""What the two kinds of crew share: the buffer, who is at work, and how a delivery leaves their hands."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.worker.buffer import Buffer
from sqlalchemy_fairqueue.worker.decisions import COMPLETE, RELEASE
from sqlalchemy_fairqueue.worker.forks import OneProcess

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.decisions import Decision
    from sqlalchemy_fairqueue.worker.fetcher import Fetcher
    from sqlalchemy_fairqueue.worker.prefetch import Prefetch
    from sqlalchemy_fairqueue.worker.settler import Settler


class Executor:
    """Those who call the handlers of one worker.

    Attributes:
        buffer: Deliveries that nobody works on yet.
        running: Deliveries that somebody works on, and since when. Whoever takes one out decides how it ends.
        one_process: Around every call of a handler.
    """

    fetcher: Fetcher
    settler: Settler

    def __init__(self, concurrency: int, pace: Prefetch) -> None:
        self.buffer = Buffer()
        self.running: dict[Context, float] = {}
        self.one_process = OneProcess()
        self._concurrency = concurrency
        self._pace = pace
        # How long a stop waits for handlers.
        self._until = math.inf

    def launch(self) -> None:
        """Be ready to call handlers: nothing to do, unless they are called in threads."""

    def free(self) -> int:
        """How many could start at once."""
        return self._concurrency - len(self.running)

    def gone(self) -> bool:
        """Whether nobody can call a handler any more, though the worker was not stopped."""
        return False

    def left(self) -> float:
        """How many seconds a stop still waits."""
        return max(0.0, self._until - monotonic())

    def hurry(self, until: float) -> None:
        """Let a stop wait no longer than *until* then, also one that is under way."""
        self._until = min(self._until, until)

    def busy(self, now: float) -> float:
        """For how many seconds nobody has been free; zero if somebody is."""
        started = list(self.running.values())
        return now - max(started) if len(started) >= self._concurrency else 0.0

    @staticmethod
    def untried(context: Context) -> Decision | None:
        """How a delivery ends that nobody should begin to work on; None: it is good."""
        # What was lost while it waited was not tried.
        return RELEASE if context.lost else COMPLETE if context.cancelled else None

    def give_up(self) -> list[Context]:
        """Leave behind what is still worked on; the deliveries, which are somebody else's now."""
        left = [context for context in list(self.running) if self.running.pop(context, None) is not None]
        for context in left:
            context.give_up()
        return left

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
