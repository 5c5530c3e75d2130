"""Health of a worker, asked by the probes of its supervisor: whether it is alive, and whether it is ready."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.installation import check_writable, read_version
from sqlalchemy_fairqueue.texts import logged
from sqlalchemy_fairqueue.worker.connection import dedicated_connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.worker.options import WorkerOptions

# A probe gives up after a second or a few; a database that needs longer is not ready.
_ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a worker at the time of the call.

    Attributes:
        alive: Whether it can go on by itself. False: restart its process.
        ready: Whether it takes messages now: it is started, its threads run, a handler is free or will be, and the
            database answers within two seconds and takes writes.
        problems: Why it is not alive or not ready, in words.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> None: ...
        >>> with Worker(engine, queue, concurrency=1) as worker:
        ...     print(worker.health())
        Health(alive=True, ready=True, problems=())
    """

    alive: bool
    ready: bool
    problems: tuple[str, ...]


class HealthCheck:
    """Asks the database of a worker whether it answers, on a connection of its own.

    Args:
        options: The worker's.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._connection = dedicated_connection(options)
        # One question at a time, however many probes come.
        self._lock = threading.Lock()
        self._is_closed = False

    def check(self, ended_threads: Sequence[str], hung: int) -> Health:
        """The health of a worker that is started, given what it knows of itself."""
        fatal = [f"its thread {name} has ended" for name in ended_threads]
        if hung >= self._options.concurrency:
            fatal.append(f"all of its {hung} handlers hang")
        unanswered = self._unanswered()
        problems = [*fatal] if unanswered is None else [*fatal, unanswered]
        return Health(alive=not fatal, ready=not problems, problems=tuple(problems))

    def close(self) -> None:
        """Let the connection go, for good."""
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def _unanswered(self) -> str | None:
        with self._lock:
            if self._is_closed:
                return "it stops"
            try:
                for queue in self._options.queues:
                    self._connection.run(partial(read_version, schema=queue.schema), within=_ANSWER_SECONDS)
                # If it refuses, the connection is closed: the next one may reach the primary.
                self._connection.run(check_writable, within=_ANSWER_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it is, messages cannot be taken
                return f"the database does not serve it: {type(error).__name__}: {logged(error)}"
        return None
