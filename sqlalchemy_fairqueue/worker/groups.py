"""Rounds of a worker that count the members of groups, and finish groups whose members have all ended.

Settlements leave notes of the members that ended; a round counts them. No worker is a leader:
:func:`fold_groups` is one statement, and only one worker executes it at a time. So a worker may die at any
moment. A round serves all queues of an installation.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call
from sqlalchemy_fairqueue.database.messages import fold_groups
from sqlalchemy_fairqueue.worker.connection import dedicated_connection
from sqlalchemy_fairqueue.worker.telemetry import log
from sqlalchemy_fairqueue.worker.timings import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue


class Groups:
    """The groups of the installations of one worker's queues.

    Args:
        connection: Of the thread that calls :meth:`poll`.
        queues: The queues.
        options: The worker's.

    Attributes:
        folded_at: When the last round began that left nothing to do, by the worker's clock.
        finished: How many groups were finished here.
    """

    def __init__(self, connection: DedicatedConnection, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
        self._connection = connection
        self._options = options
        self._notify: dict[str | None, bool] = {}
        for queue in queues:
            schema = queue.target.schema
            self._notify[schema] = self._notify.get(schema, True) and queue.target.notify
        self._backoff = Backoff("finish groups", options.name, options.clock, options.timings)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.folded_at: float | None = None
        self.finished: int = 0

    def poll(self) -> None:
        """Begin a round in a thread of its own if there is anything to do: no lease waits for it."""
        due = (call(schema, "fq_groups_due", "poll for groups") for schema in self._notify)
        if any(self._connection.run(one.value) for one in due):
            self.start()

    def start(self) -> None:
        """Begin a round, unless one is under way. Any thread may call it."""
        with self._starting:
            if not self._stopping and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self.run, name=f"{self._options.name}-groups", daemon=True)
                self._thread.start()

    def end(self, finished: int) -> bool:
        """Begin no more rounds, unless one is under way or more groups were finished than these: then return False."""
        with self._starting:
            if self.finished != finished or (self._thread is not None and self._thread.is_alive()):
                return False
            self._stopping = True
            return True

    def stop(self) -> None:
        """Begin no more rounds, and wait for the statement that is under way for a moment."""
        with self._starting:
            self._stopping = True
        if self._thread is not None:
            self._thread.join(self._options.timings.stop_dequeue)

    def run(self) -> None:
        """Do one round: fold and finish until nothing is left, or another worker does it."""
        began = self._options.clock()
        connection = dedicated_connection(self._options, within=self._options.stuck_after)
        try:
            if all(self._fold(connection, schema) for schema in self._notify):
                self.folded_at = began
            self._backoff.succeeded()
        except Exception as error:  # noqa: BLE001 - the next round, or another worker, does it
            self._backoff.failed(error)
        finally:
            connection.close()

    def _fold(self, connection: DedicatedConnection, schema: str | None) -> bool:
        """Fold one installation. Whether nothing is left to do."""
        timings = self._options.timings
        fold = partial(
            fold_groups,
            schema=schema,
            limit=timings.notes_at_once,
            groups=timings.groups_at_once,
            notify=self._notify[schema],
        )
        while not self._stopping:
            done = connection.run(fold)
            if done is None:
                return False
            if done.finished:
                self.finished += done.finished
                log.debug(
                    "worker %s: %d groups whose members have ended",
                    *(self._options.name, done.finished),
                    extra={"worker": self._options.name},
                )
            if not done.more:
                return True
        return False
