"""Wake-ups of a worker's threads: by each other, with events, and by commits, after a wait is registered.

The worker registers a wait in the database and polls once more. Then it relies on notifications, beside one poll after
about 0.2 seconds and one each poll interval (see ``PollSchedule``). Without notifications (``listen=False``, or no
listening connection just now) it polls more often instead.
"""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.notifications import Subscription
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.timings import Clock


class WakeEvent:
    """An event that is cheap to set again and again while its thread has not come back to wait.

    The waiting thread takes the event, does all there is to do, and waits again: an event that was set in between ends
    its wait at once. It is one lock, held while the event is not set: a threading.Event is three, and some Python
    around them.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the thread, now or when it waits next. Any thread may call it, also while another one does."""
        if self._unset.locked():
            # Another thread may have set it since.
            with contextlib.suppress(RuntimeError):
                self._unset.release()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the event, and take it. Returns whether it was set. Only one thread may wait."""
        return self._unset.acquire(timeout=-1 if seconds is None else max(0.0, seconds))


class FetchTrigger:
    """All that lets the fetcher of one worker begin a round before the time that it has chosen.

    It is made before the other parts, which call it in their threads; only the fetcher waits for it.

    Attributes:
        refill_at: The executor wakes the fetcher when no more than so many deliveries are left in its buffer; -1: it
            does not. The fetcher sets it.
        is_backlogged: Whether the fetcher waits for deliveries to be settled. The fetcher sets it.
    """

    __slots__ = ("_clock", "_event", "is_backlogged", "refill_at")

    def __init__(self, clock: Clock) -> None:
        self.refill_at: int = -1
        self.is_backlogged: bool = False
        self._clock = clock
        self._event = WakeEvent()

    def set(self) -> None:
        """Something changed: a handler is free, a queue may have work, or the worker stops."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait until something changes. For the fetcher."""
        self._event.wait(seconds)

    def settled(self, queues: Iterable[ServedQueue]) -> None:
        """Deliveries were settled, which made room in these queues. A fetcher that is about to poll them waits on."""
        now = self._clock()
        earlier = [queue.polls.poll_now(now) for queue in queues]
        if any(earlier) or self.is_backlogged:
            self._event.set()

    def notified(self, named: Iterable[ServedQueue], others: Iterable[ServedQueue]) -> None:
        """Notifications came: for some queues they named this worker, for others another consumer."""
        now = self._clock()
        earlier = [queue.polls.poll_now(now) for queue in named]
        earlier += [queue.polls.poll_later(now) for queue in others]
        if any(earlier):
            self._event.set()


class WaitRegistration:
    """The waits of one worker. The fetcher calls it.

    Args:
        connection: The fetcher's.
        options: The worker's.
        subscribe: Joins the listening connection to the database of this one; None: the worker is not to be woken.
    """

    def __init__(
        self,
        connection: DedicatedConnection,
        options: WorkerOptions,
        subscribe: Callable[[DedicatedConnection], Subscription] | None,
    ) -> None:
        self._connection = connection
        self._clock = options.clock
        self._margin = options.timings.wait_margin
        self._interval = min(
            options.interval_with_notifications, (options.timings.longest_wait - options.timings.wait_margin) / 2
        )
        self._interval_alone = options.interval_without_notifications
        self._subscribe = subscribe
        self._subscription: Subscription | None = None

    def before_poll(self, queue: ServedQueue) -> None:
        """A poll is about to begin; if polls gave nothing lately, register a wait first."""
        if self._subscription is None and self._subscribe is not None:
            self._subscription = self._subscribe(self._connection)
        subscription = self._subscription
        polls = queue.polls
        if subscription is None or not subscription.is_listening:
            polls.interval = self._interval_alone
            polls.wait_ended(self._clock())
            return
        # A producer that has such a queue wakes nobody.
        polls.interval = self._interval if queue.queue.notify else min(self._interval, self._interval_alone)
        now = self._clock()
        if not polls.needs_wait(now):
            return
        # Two intervals long: a registration is a write, and one that a dead worker leaves costs producers a
        # notification each, and keeps them from naming another worker.
        seconds = 2 * self._interval + self._margin

        begin = queue.target.call(
            "fq_wait",
            f"wait for queue {queue.target.queue!r}",
            consumer=queue.consumer.name,
            lease_id=queue.waiting_lease,
            wait=microseconds(timedelta(seconds=seconds)),
        )

        def work(connection: Connection) -> tuple[int, str]:
            [(lease_id, topic)] = begin.rows(connection)
            connection.commit()
            return lease_id, topic

        queue.waiting_lease, topic = self._connection.run(work)
        polls.wait_begun(now, now + seconds)
        subscription.follow(topic, queue)

    def after_work(self, queue: ServedQueue) -> None:
        """A poll gave messages; if several did, producers need not wake the worker."""
        if queue.polls.needs_no_wait():
            self._take_back(queue)

    def close(self, queues: Sequence[ServedQueue]) -> None:
        """The worker stops: nobody need wake it."""
        if self._subscription is None:
            return
        self._subscription.close()
        # A registration that stays ends by itself.
        with contextlib.suppress(Exception):
            for queue in queues:
                if queue.polls.waiting_until > self._clock():
                    self._take_back(queue)

    def _take_back(self, queue: ServedQueue) -> None:
        queue.polls.wait_ended(self._clock())
        doing = f"stop waiting for queue {queue.target.queue!r}"
        end = queue.target.call("fq_wait", doing, consumer=queue.consumer.name, lease_id=queue.waiting_lease, wait=0)

        def work(connection: Connection) -> None:
            end.rows(connection)
            connection.commit()

        self._connection.run(work)
