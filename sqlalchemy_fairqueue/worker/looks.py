"""When to look for work again. No I/O.

After work was found a queue is looked at again at once; after nothing was found, soon at first and then ever later, up
to the poll interval, or when the next message is due. A worker that can be woken says that it sleeps *before* its last
look, so that whatever is committed after that look wakes it.
"""

from __future__ import annotations

_SOON = 0.005
_LOCKED = 0.05


class Looks:
    """The looks at one queue.

    Attributes:
        next_at: When to look next, on time.monotonic.
        interval: The poll interval in seconds, now.
        marked_until: Until when producers know that its consumer sleeps; 0: they do not.
    """

    __slots__ = ("_found", "_hint", "_nothing", "interval", "marked_until", "next_at")

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.next_at = 0.0
        self.marked_until = 0.0
        self._found = 0
        self._nothing = 0
        self._hint: float | None = None

    def needs_mark(self, now: float) -> bool:
        """Whether to tell producers that we sleep, before the next look: nothing was found lately."""
        return self._nothing > 0 and self.marked_until - now < self.interval

    def needs_no_mark(self) -> bool:
        """Whether to tell them that we do not: work was found again and again."""
        return self._found > 1 and self.marked_until > 0

    def found(self, now: float, due_in: float | None, *, full: bool) -> None:
        """A look gave messages; *full*: as many as were asked for."""
        self._found += 1
        self._nothing = 0
        self.next_at = now if full else self._due(now, due_in, _SOON)

    def nothing(self, now: float, due_in: float | None) -> None:
        """A look gave nothing."""
        # What is ready but in the hands of another call comes back soon, but not in a circle.
        soonest = min(_LOCKED, _SOON * 2 ** min(self._nothing, 10)) / 2
        if self.marked_until > now:
            wait = min(self.interval, self.marked_until - now)
        else:
            wait = min(self.interval, _SOON * 2 ** min(self._nothing, 20))
        self._found = 0
        self._nothing += 1
        self.next_at = self._due(now, None if due_in is None else max(due_in, soonest), wait)

    def failed(self, now: float, wait: float) -> None:
        """A look failed."""
        self.next_at = now + wait

    def nudge(self, now: float) -> None:
        """There may be something now."""
        self.next_at = min(self.next_at, now)

    def hint(self, at: float) -> None:
        """There will be something then, by our own doing: a message that is to be tried again."""
        if self._hint is None or at < self._hint:
            self._hint = at
        self.next_at = min(self.next_at, at)

    def _due(self, now: float, due_in: float | None, wait: float) -> float:
        due = now + (wait if due_in is None else min(wait, due_in))
        if self._hint is not None:
            if self._hint <= now:
                self._hint = None
            else:
                due = min(due, self._hint)
        return due
