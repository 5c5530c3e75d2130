"""When to look for work again. No I/O.

A queue that gave all that was asked for is looked at again at once; one that gave less or nothing soon at first and
then ever later, up to the poll interval, or when the next message is due. A worker that can be woken says that it
sleeps *before* its last look, so that whoever enqueues after that wakes it, and takes that back when there is work
again and again. Who enqueued before it said so, and commits after its look, wakes nobody: so a worker that falls asleep
still looks again, ever later, before it relies on being woken.

One thread looks; any thread may nudge or hint, also while a look is under way: what is said then is about what that
look may have missed, and counts when it ends.
"""

from __future__ import annotations

from math import exp

_SOON = 0.005
# So long a look waits that is likely to find nothing: another consumer was woken for the message.
_LATER = 0.02
_LOCKED = 0.05
# A worker that falls asleep looks when the time since its mark has grown so much: older transactions end meanwhile.
_DRIFT = 40
# To be woken is dearer than to look every _SOON: so many looks in a row gave all they could, ...
_OFTEN = 8
# ... or so many messages a second came lately, by an exponential average over so many seconds.
_LATELY = 0.05
_BUSY = 140 * _LATELY
# Half as many, and the last look gave nothing: it is cheaper again.
_CALM = _BUSY / 2
# Many that came at once say no more than so many: one transaction, that notified once.
_MOST_AT_ONCE = 2


class PollSchedule:
    """The looks at one queue.

    Attributes:
        next_at: When to look next, on time.monotonic.
        interval: The poll interval in seconds, now.
        marked_until: Until when producers know that its consumer sleeps; 0: they do not.
        empty_at: When the last look began, if it found that nothing can be delivered for a while; else 0.
    """

    __slots__ = (
        "_began_at",
        "_full",
        "_hint",
        "_late_at",
        "_lately",
        "_lately_at",
        "_marked_at",
        "_nothing",
        "_nudged",
        "empty_at",
        "interval",
        "marked_until",
        "next_at",
    )

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.next_at = 0.0
        self.marked_until = 0.0
        self.empty_at = 0.0
        self._began_at = 0.0
        self._marked_at = 0.0
        self._full = 0
        self._lately = 0.0
        self._lately_at = 0.0
        self._nothing = 0
        self._nudged = False
        self._hint: float | None = None
        self._late_at: float | None = None

    def needs_mark(self, now: float) -> bool:
        """Whether to tell producers that we sleep, before the next look: nothing was found, and little lately."""
        return self._nothing > 0 and self.marked_until - now < self.interval and self._lately_by(now) < _CALM

    def needs_no_mark(self) -> bool:
        """Whether to tell them that we do not: work was found again and again."""
        return self.marked_until > 0 and (self._full > _OFTEN or self._lately > _BUSY)

    def marked(self, now: float, until: float) -> None:
        """Producers that begin to enqueue from now on know that its consumer sleeps."""
        if self.marked_until <= now:
            self._marked_at = now
        self.marked_until = until

    def unmarked(self, now: float) -> None:
        """Producers do not know, or cannot wake it: whoever relied on them looks soon."""
        self.marked_until = 0.0
        self.next_at = min(self.next_at, now + _SOON)

    def begin(self, now: float) -> None:
        """A look begins."""
        self._began_at = now
        self.empty_at = 0.0
        self._nudged = False
        # What was committed before is in this look.
        self._late_at = None

    def found(self, now: float, due_in: float | None, *, count: int, full: bool) -> None:
        """A look gave *count* messages; *full*: as many as were asked for."""
        self._full = self._full + 1 if full else 0
        self._lately = self._lately_by(now) + min(count, _MOST_AT_ONCE)
        self._lately_at = now
        self._nothing = 0
        self._next(now if full else self._due(now, due_in, self._until_woken(now, _SOON)))

    def nothing(self, now: float, due_in: float | None) -> None:
        """A look gave nothing."""
        if due_in is None or due_in > _LOCKED:
            self.empty_at = self._began_at
        # In a stream of messages that is chance: nobody wakes us yet.
        before = 0 if self._lately_by(now) >= _CALM else self._nothing
        # What is ready but in the hands of another call comes back soon, but not in a circle.
        soonest = min(_LOCKED, _SOON * 2 ** min(before, 10)) / 2
        wait = self._until_woken(now, min(self.interval, _SOON * 2 ** min(before, 20)))
        self._full = 0
        self._nothing = before + 1
        self._next(self._due(now, None if due_in is None else max(due_in, soonest), wait))

    def failed(self, now: float, wait: float) -> None:
        """A look failed."""
        self.next_at = now + wait

    def nudge(self, now: float) -> bool:
        """There may be something now. Returns whether the next look was to come later."""
        self._nudged = True
        if self.next_at <= now:
            return False
        self.next_at = now
        return True

    def hint(self, at: float) -> None:
        """There will be something then, by our own doing: a message that is to be tried again."""
        if self._hint is None or at < self._hint:
            self._hint = at
        self.next_at = min(self.next_at, at)

    def others_woken(self, now: float) -> bool:
        """Another consumer was woken, who may be dead or busy: look a moment later. Returns as :meth:`nudge`."""
        # A look that begins meanwhile forgets it, and sees what this is about.
        at = self._late_at
        if at is None:
            at = self._late_at = now + _LATER
        if self.next_at <= at:
            return False
        self.next_at = at
        return True

    def _lately_by(self, now: float) -> float:
        return self._lately * exp((self._lately_at - now) / _LATELY)

    def _until_woken(self, now: float, otherwise: float) -> float:
        """How long to wait for whoever enqueues under our mark; without one there is nobody to wait for."""
        if self.marked_until <= now:
            return otherwise
        return min(self.interval, self.marked_until - now, _DRIFT * max(_SOON, now - self._marked_at))

    def _due(self, now: float, due_in: float | None, wait: float) -> float:
        return now + (wait if due_in is None else min(wait, due_in))

    def _next(self, at: float) -> None:
        """Set the next look; only then ask what others said meanwhile, for they set it before or after."""
        self.next_at = at
        if self._nudged:
            self.next_at = min(at, self._began_at)
        late_at, hint = self._late_at, self._hint
        if late_at is not None:
            self.next_at = min(self.next_at, late_at)
        if hint is not None:
            if hint <= self._began_at:
                self._hint = None
            else:
                self.next_at = min(self.next_at, hint)
