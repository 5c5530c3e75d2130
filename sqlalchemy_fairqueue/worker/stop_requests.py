"""Requests of operators to a worker to stop.

The worker polls for them on the connection of its duties, by a statement that reads one row for each queue. So it sees
a request while it waits, while all handlers are busy, and while it has no lease. A worker that obeys a request leaves
it in place, because other processes may have the same name. A worker ignores requests from before its own start.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.stats import read_stop_requests
from sqlalchemy_fairqueue.worker.telemetry import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy_fairqueue.database.stats import StopRequest
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue


class StopRequests:
    """The requests to one worker.

    Args:
        queues: The worker's.
        options: The worker's.
        stop: Begins the stop, in another thread. It is called once.
    """

    def __init__(self, queues: Sequence[ServedQueue], options: WorkerOptions, stop: Callable[[], None]) -> None:
        self._options = options
        self._stop = stop
        self._queues: dict[str | None, list[str]] = {}
        for queue in queues:
            self._queues.setdefault(queue.target.schema, []).append(queue.target.queue)
        self._before: set[tuple[str | None, StopRequest]] = set()
        self._obeyed = False

    def begin(self, connection: DedicatedConnection) -> None:
        """Note the requests that stand before the worker starts."""
        self._before = set(self._read(connection))

    def poll(self, connection: DedicatedConnection) -> None:
        """Obey a request that was made since then."""
        if self._obeyed:
            return
        for schema, request in self._read(connection):
            if (schema, request) not in self._before:
                self._obeyed = True
                log.info(
                    "worker %s stops: %r asked it to, at %s, on queue %s",
                    self._options.name,
                    request.requested_by,
                    f"{request.requested_at:%Y-%m-%d %H:%M:%S} UTC",
                    request.queue,
                    extra={"worker": self._options.name},
                )
                self._stop()
                return

    def _read(self, connection: DedicatedConnection) -> Iterator[tuple[str | None, StopRequest]]:
        for schema, queues in self._queues.items():
            read = partial(read_stop_requests, schema=schema, queues=queues, consumer=self._options.name)
            for request in connection.run(read):
                yield schema, request
