"""Registered waits of a worker, so that commits wake it while it has nothing to do.

The worker registers a wait in the database and polls once more. Then it relies on notifications, beside one poll after
about 0.2 seconds and one each poll interval (see ``polls``). Without notifications (``notify=False``, or no listening
connection just now) it polls more often instead.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import database

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database import Wait
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.notifications import Subscription
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue


class WaitRegistration:
    """The waits of one worker. The fetcher calls it.

    Args:
        connection: The fetcher's.
        options: The worker's.
        subscribe: Joins the listening connection to the database of a driver's connection; None: the worker is not to
            be woken.
    """

    def __init__(
        self, connection: DedicatedConnection, options: WorkerOptions, subscribe: Callable[[Any], Subscription] | None
    ) -> None:
        self._connection = connection
        self._clock = options.clock
        self._slack = options.timings.wait_slack
        self._interval = min(options.interval_with_notifications, options.timings.wait_most / 2)
        self._interval_alone = options.interval_without_notifications
        self._subscribe = subscribe
        self._subscription: Subscription | None = None

    def before_poll(self, queue: ServedQueue) -> None:
        """A poll is about to begin; if polls gave nothing lately, register a wait first."""
        if self._subscription is None and self._subscribe is not None:
            self._subscription = self._subscribe(self._connection.driver())
        subscription = self._subscription
        polls = queue.polls
        if subscription is None or not subscription.is_listening:
            polls.interval = self._interval_alone
            polls.waits_no_more(self._clock())
            return
        # A producer that has such a queue wakes nobody.
        polls.interval = self._interval if queue.queue.notify else min(self._interval, self._interval_alone)
        now = self._clock()
        if not polls.needs_wait(now):
            return
        # Two intervals long: a registration is a write, and one that a dead worker leaves costs producers a
        # notification each, and keeps them from naming another worker.
        seconds = 2 * self._interval + self._slack

        def work(connection: Connection) -> Wait:
            wait = database.wait(
                connection,
                queue.target,
                consumer=queue.consumer.name,
                lease_id=queue.waiting_lease,
                duration=timedelta(seconds=seconds),
            )
            connection.commit()
            return wait

        queue.waiting_lease, topic = self._connection.run(work)
        polls.waits(now, now + seconds)
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
        queue.polls.waits_no_more(self._clock())
        lease_id = queue.waiting_lease

        def work(connection: Connection) -> None:
            database.unwait(connection, queue.target, lease_id)
            connection.commit()

        self._connection.run(work)
