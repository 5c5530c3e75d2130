"""A queue as one worker serves it: its consumer, its handlers, and the schedule of its polls. No I/O.

If a queue gave as many messages as the worker asked for, the worker polls it again at once. If it gave fewer, the next
poll comes soon at first and later each time, up to the poll interval, or when the next message is due.

A worker that can be woken registers its wait *before* its last poll, so that each enqueue after the registration wakes
it. It ends the wait when one poll after another finds work. A transaction that enqueued before the registration and
commits after that poll wakes nobody. So the worker polls once more after about 0.2 seconds. It finds the messages of a
transaction that commits even later after one poll interval.
"""

from __future__ import annotations

import shlex
import threading
from functools import partial
from math import exp
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.queue.contexts import middleware_for, middleware_of
from sqlalchemy_fairqueue.queue.handlers import handlers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.contexts import AnyMiddleware
    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.values.messages import Lease
    from sqlalchemy_fairqueue.values.outcomes import RetryPolicy
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.timings import Backoff, Timings

    Track = Callable[["ServedQueue", Lease, float], Lease]

# To be woken is dearer than to poll soon again and again: so many polls in a row gave all they could, ...
_OFTEN = 8
# ... or so many messages a second came lately, by an exponential average over so many seconds.
_LATELY = 0.05
_BUSY = 140 * _LATELY
# Half as many, and the last poll gave nothing: to be woken is cheaper again.
_CALM = _BUSY / 2
# Many messages that came at once count as no more than so many: one transaction notifies once.
_MOST_AT_ONCE = 2


class PollSchedule:
    """The polls of one queue.

    Attributes:
        next_at: When to poll next, by the worker's clock.
        interval: The poll interval in seconds, now.
        waiting_until: Until when the worker's wait is registered; 0: it is not.
        empty_at: When the last poll began, if it found that nothing can be delivered for a while; else 0.
    """

    def __init__(self, interval: float, timings: Timings) -> None:
        self.interval: float = interval
        self._timings = timings
        self.next_at: float = 0.0
        self.waiting_until: float = 0.0
        self.empty_at: float = 0.0
        self._began_at = 0.0
        self._waiting_since = 0.0
        self._full = 0
        self._lately = 0.0
        self._lately_at = 0.0
        self._nothing = 0
        self._asked_again = False
        self._asked_at: float | None = None
        self._late_at: float | None = None

    def needs_wait(self, now: float) -> bool:
        """Whether to register a wait before the next poll: the last one gave nothing, and little came lately."""
        return self._nothing > 0 and self.waiting_until - now < self.interval and self._lately_by(now) < _CALM

    def needs_no_wait(self) -> bool:
        """Whether to take the wait back: polls gave messages again and again."""
        return self.waiting_until > 0 and (self._full > _OFTEN or self._lately > _BUSY)

    def wait_begun(self, now: float, until: float) -> None:
        """A wait is registered: each enqueue from now on wakes the worker."""
        if self.waiting_until <= now:
            self._waiting_since = now
        self.waiting_until = until

    def wait_ended(self, now: float) -> None:
        """No wait is registered, or nothing can wake the worker: it polls soon."""
        self.waiting_until = 0.0
        self.next_at = min(self.next_at, now + self._timings.poll_soon)

    def renew_wait(self) -> None:
        """The registered wait may be lost: another one is registered before the next poll. Any thread may call it."""
        self.waiting_until = 0.0

    def begin(self, now: float) -> None:
        """A poll begins."""
        self._began_at = now
        self.empty_at = 0.0
        self._asked_again = False
        # This poll sees what was committed before.
        self._late_at = None

    def found(self, now: float, due_in: float | None, *, count: int, full: bool) -> None:
        """A poll gave *count* messages; *full*: as many as were asked for."""
        self._full = self._full + 1 if full else 0
        self._lately = self._lately_by(now) + min(count, _MOST_AT_ONCE)
        self._lately_at = now
        self._nothing = 0
        self._next(now if full else self._due(now, due_in, self._until_woken(now, self._timings.poll_soon)))

    def nothing(self, now: float, due_in: float | None, *, locked: bool = False) -> None:
        """A poll gave nothing; *locked*: something is due, and locked by another transaction."""
        if not locked and (due_in is None or due_in > self._timings.poll_locked):
            self.empty_at = self._began_at
        # In a stream of messages that is chance: the worker does not wait yet.
        before = 0 if self._lately_by(now) >= _CALM else self._nothing
        # A ready message that another call holds comes back soon; yet no poll follows the other without a pause.
        # What stays locked is due ever later.
        soonest = min(self._timings.poll_locked, self._timings.poll_soon * 2 ** min(before, 10)) / 2
        wait = self._until_woken(now, min(self.interval, self._timings.poll_soon * 2 ** min(before, 20)))
        self._full = 0
        self._nothing = before + 1
        self._next(self._due(now, None if due_in is None else max(due_in, soonest), wait))

    def failed(self, now: float, wait: float) -> None:
        """A poll failed."""
        self.renew_wait()
        self.next_at = now + wait

    def poll_now(self, now: float) -> bool:
        """There may be messages now. Returns whether the next poll was to come later."""
        self._asked_again = True
        if self.next_at <= now:
            return False
        self.next_at = now
        return True

    def poll_at(self, at: float) -> None:
        """There will be a message then: this worker has put it off until then."""
        if self._asked_at is None or at < self._asked_at:
            self._asked_at = at
        self.next_at = min(self.next_at, at)

    def poll_later(self, now: float) -> bool:
        """Another consumer was woken, which may be dead or busy: poll a moment later. Returns as :meth:`poll_now`."""
        # A poll that begins meanwhile resets it, and sees the messages that it is about.
        at = self._late_at
        if at is None:
            at = self._late_at = now + self._timings.poll_later
        if self.next_at <= at:
            return False
        self.next_at = at
        return True

    def _lately_by(self, now: float) -> float:
        return self._lately * exp((self._lately_at - now) / _LATELY)

    def _until_woken(self, now: float, otherwise: float) -> float:
        """The time for which to rely on being woken; *otherwise* if no wait is registered."""
        if self.waiting_until <= now:
            return otherwise
        return min(
            self.interval,
            self.waiting_until - now,
            self._timings.poll_drift * max(self._timings.poll_soon, now - self._waiting_since),
        )

    def _due(self, now: float, due_in: float | None, wait: float) -> float:
        return now + (wait if due_in is None else min(wait, due_in))

    def _next(self, at: float) -> None:
        """Set the next poll; then apply what others asked for meanwhile, who set it before this or after."""
        self.next_at = at
        if self._asked_again:
            self.next_at = min(at, self._began_at)
        late_at, asked_at = self._late_at, self._asked_at
        if late_at is not None:
            self.next_at = min(self.next_at, late_at)
        if asked_at is not None:
            if asked_at <= self._began_at:
                self._asked_at = None
            else:
                self.next_at = min(self.next_at, asked_at)


_NO_RESOURCES: Mapping[str, Any] = MappingProxyType({})


class ServedQueue:
    """One queue of a worker.

    Args:
        queue: The queue.
        options: The worker's.
        track: Notes the lease of a dequeue: the queue, the lease, and when the dequeue was sent.
        resources: For its handlers, by name. They are there when the first one is called.

    Attributes:
        queue: The queue.
        target: Its schema and name.
        consumer: Dequeues from it.
        polls: When to poll it.
        backoff: Failures of its dequeues.
        dequeuing: Held while a dequeue is under way.
        heard_at: When its signals were last heard, by the worker's clock.
        resources: For its handlers, by name.
        reference: The options that name it to the command line.
        waiting_lease: The lease under which the worker's wait is registered, if it ever was.
    """

    def __init__(
        self, queue: Queue, options: WorkerOptions, track: Track, resources: Mapping[str, Any] = _NO_RESOURCES
    ) -> None:
        self.queue = queue
        self.resources = resources
        schema = "" if queue.schema is None else f" --schema {shlex.quote(queue.schema)}"
        self.reference: str = options.references.get(
            (queue.schema, queue.name), f"--queue {shlex.quote(queue.name)}{schema}"
        )
        self.target: Target = queue._target  # noqa: SLF001 - with its bind arguments
        self.consumer: Consumer = Consumer(self.target, queue.codec, options.name, partial(track, self))
        self.polls: PollSchedule = PollSchedule(options.interval_without_notifications, options.timings)
        self.backoff: Backoff = options.backoff(f"dequeue from {queue.name!r}")
        self.dequeuing: threading.Lock = threading.Lock()
        self.heard_at: float = 0.0
        self.waiting_lease: int | None = None
        self._middleware = middleware_of(queue, options.middleware)
        self._around: dict[str, tuple[AnyMiddleware, ...]] = {}

    def handler(self, kind: str) -> Handler:
        """The handler of a kind.

        Raises:
            WorkerError: There is none.
        """
        handler = handlers_of(self.queue).get(kind)
        if handler is None:
            known = ", ".join(sorted(handlers_of(self.queue))) or "none"
            raise WorkerError(
                f"queue {self.queue.name!r} has no handler for kind {kind!r} in this worker (it knows: {known}); "
                f"declare one with @queue.handler({kind!r}), or leave the kind to workers that know it"
            )
        return handler

    def around(self, handler: Handler) -> tuple[AnyMiddleware, ...]:
        """The middleware around a handler, outermost first.

        Raises:
            WorkerError: There is some, but none for handlers like this one.
        """
        if not self._middleware:
            return ()
        found = self._around.get(handler.kind)
        if found is None:
            found = self._around[handler.kind] = middleware_for(handler, self._middleware)
        return found

    def policy(self, handler: Handler | None, default: RetryPolicy) -> RetryPolicy:
        """The policy by which failures of a kind are tried again."""
        return default if handler is None or handler.retry is None else handler.retry
