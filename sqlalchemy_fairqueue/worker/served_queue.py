"""A queue as one worker serves it: its consumer, its handlers, and the schedule of its polls. No I/O."""

from __future__ import annotations

import shlex
import threading
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.queue.contexts import middleware_for, middleware_of
from sqlalchemy_fairqueue.queue.handlers import handlers_of
from sqlalchemy_fairqueue.worker.poll_schedule import PollSchedule
from sqlalchemy_fairqueue.worker.timings import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.contexts import AnyMiddleware
    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.values.messages import Lease
    from sqlalchemy_fairqueue.values.outcomes import RetryPolicy
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

    Track = Callable[["ServedQueue", Lease, float], Lease]

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
        self.backoff: Backoff = Backoff(f"dequeue from {queue.name!r}", options.name, options.clock, options.timings)
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
