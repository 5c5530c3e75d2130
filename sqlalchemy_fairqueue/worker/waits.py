"""How a worker sleeps without missing work: it says so first, looks again, and is woken by a notification.

Without notifications (``notify=False``, no listening connection just now) it polls more often.
"""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.notifications import Subscription
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue

_SLACK = 1.0


class WaitRegistration:
    """The sleep of one worker.

    Args:
        subscribe: Joins the listening connection to the database of a driver's connection; None: it is not to be woken.
        interval: The poll interval in seconds while it can be woken.
        alone: The poll interval while it cannot.
    """

    def __init__(self, subscribe: Callable[[Any], Subscription] | None, interval: float, alone: float) -> None:
        self._subscribe = subscribe
        self._subscription: Subscription | None = None
        self._interval = interval
        self._alone = alone

    def before_look(self, line: DedicatedConnection, source: ServedQueue) -> None:
        """A look is about to be made; if nothing was found lately, tell producers first that we sleep after it."""
        if self._subscription is None and self._subscribe is not None:
            self._subscription = self._subscribe(line.driver())
        subscription = self._subscription
        looks = source.looks
        if subscription is None or not subscription.is_heard:
            looks.interval = self._alone
            looks.unmarked(monotonic())
            return
        looks.interval = self._interval
        now = monotonic()
        if not looks.needs_mark(now):
            return
        # Two sleeps long: a mark is a write, and one that a dead worker leaves costs producers a notification each.
        seconds = 2 * self._interval + _SLACK

        def work(connection: Connection) -> tuple[int, str]:
            with translated(f"wait for queue {source.queue.name!r}"):
                row = connection.execute(
                    statements.wait(source.target.schema),
                    {
                        "queue": source.target.queue,
                        "consumer": source.consumer.name,
                        "lease_id": source.marked_lease,
                        "wait": int(seconds * 1_000_000),
                    },
                ).one()
                connection.commit()
            return row.lease_id, row.topic

        source.marked_lease, topic = line.run(work)
        looks.marked(now, now + seconds)
        subscription.follow(topic, source)

    def after_work(self, line: DedicatedConnection, source: ServedQueue) -> None:
        """Work was found; if it was again and again, producers need not wake us."""
        if source.looks.needs_no_mark():
            self._unmark(line, source)

    def close(self, line: DedicatedConnection, sources: Sequence[ServedQueue]) -> None:
        """The worker stops: nobody need wake it."""
        if self._subscription is None:
            return
        self._subscription.close()
        # A mark that stays ends by itself.
        with contextlib.suppress(Exception):
            for source in sources:
                if source.looks.marked_until > monotonic():
                    self._unmark(line, source)

    def _unmark(self, line: DedicatedConnection, source: ServedQueue) -> None:
        source.looks.unmarked(monotonic())
        lease_id = source.marked_lease

        def work(connection: Connection) -> None:
            with translated(f"stop waiting for queue {source.queue.name!r}"):
                connection.execute(statements.unwait(source.target.schema), {"lease_id": lease_id})
                connection.commit()

        line.run(work)
