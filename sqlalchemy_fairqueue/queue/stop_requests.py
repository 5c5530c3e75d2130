"""Methods that ask workers of a queue to stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.verbs import verb
from sqlalchemy_fairqueue.values import check_name

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.queue.verbs import Where


class StopMethods(QueueBase):
    """stop_worker: done at once, since it returns what it found."""

    @verb
    def stop_worker(self, where: Where, consumer: str, *, by: str | None = None) -> bool:
        """Ask a worker to stop gracefully, as at a SIGTERM: with its own grace, and from all of its queues.

        The worker polls for it and hears of it within about two seconds after the commit, also if it waits for work or
        all of its handlers are busy; its log says who asked. Every worker of the queue with this name stops, also in
        other processes. A worker that starts after the commit does not. So a supervisor that starts workers again
        after each end starts this one again, too.

        On a session or connection the request is part of the transaction, on an engine it has one of its own. It waits
        for another transaction that has asked the same consumer.

        Args:
            where: A session, Connection or Engine.
            consumer: The worker's name, as :meth:`consumers` shows it.
            by: Who asks, for the worker's log. Default: the role of the database.

        Returns:
            Whether a consumer of that name has a lease that has not expired. False: there is probably none, or it has
            just started; the request stands all the same.

        Raises:
            InvalidArgument: A bad name.

        Example:
            >>> queue.stop_worker(engine, "worker-1", by="alice")  # nobody of that name works on the queue
            False
        """
        check_name("consumer", consumer)
        if by is not None:
            check_name("by", by)
        return self._ask(where, partial(database.request_stop, target=self._target, consumer=consumer, by=by))
