"""A queue as one worker serves it: its consumer, its handlers and its polls."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.worker.backoff import Backoff
from sqlalchemy_fairqueue.worker.polls import PollSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.values import Lease, RetryPolicy
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

    Track = Callable[["ServedQueue", Lease, float], Lease]


class ServedQueue:
    """One queue of a worker.

    Args:
        queue: The queue.
        options: The worker's.
        track: Notes the lease of a dequeue: the queue, the lease, and when the dequeue was sent.

    Attributes:
        queue: The queue.
        target: Its schema and name.
        consumer: Dequeues from it.
        polls: When to poll it.
        backoff: Failures of its dequeues.
        dequeuing: Held while a dequeue is under way.
        heard_at: When its signals were last heard, by the worker's clock.
        waiting_lease: The lease under which the worker's wait is registered, if it ever was.
    """

    def __init__(self, queue: Queue, options: WorkerOptions, track: Track) -> None:
        self.queue = queue
        self.target = queue._target  # noqa: SLF001 - with its bind arguments
        self.consumer = Consumer(self.target, queue.codec, options.name, partial(track, self))
        self.polls = PollSchedule(options.interval_without_notifications, options.timings)
        self.backoff = Backoff(f"dequeue from {queue.name!r}", options.name, options.clock, options.timings)
        self.dequeuing = threading.Lock()
        self.heard_at = 0.0
        self.waiting_lease: int | None = None

    def handler(self, kind: str) -> Handler:
        """The handler of a kind.

        Raises:
            WorkerError: There is none.
        """
        handler = self.queue.handlers.get(kind)
        if handler is None:
            known = ", ".join(sorted(self.queue.handlers)) or "none"
            raise WorkerError(
                f"queue {self.queue.name!r} has no handler for kind {kind!r} in this worker (it knows: {known}); "
                f"declare one with @queue.handler({kind!r}), or leave the kind to workers that know it"
            )
        return handler

    def policy(self, handler: Handler | None, default: RetryPolicy) -> RetryPolicy:
        """The policy by which failures of a kind are tried again."""
        return default if handler is None or handler.retry is None else handler.retry
