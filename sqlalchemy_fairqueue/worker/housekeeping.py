"""Housekeeping that any worker may do for all: it makes partitions of the history ahead, and drops old ones.

The SQL function lets one worker at a time do it, and finishes what another one left; so it does not matter which
workers do it, how often, or whether one dies in it. It runs in a thread of its own, so that no lease waits for it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import said, translated
from sqlalchemy_fairqueue.worker.connection import dedicated_connection
from sqlalchemy_fairqueue.worker.logs import log

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.options import WorkerOptions

_AHEAD_DAYS = 7


class Housekeeping:
    """The housekeeping of one worker, in the schemas of its queues.

    Args:
        options: The worker's.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._schemas = sorted({queue.schema for queue in options.queues}, key=lambda schema: schema or "")
        self._name = options.name
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin a round in a thread of its own, unless one is under way."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self.run, name=f"{self._name}-housekeeping", daemon=True)
            self._thread.start()

    def run(self) -> None:
        """Do one round."""
        connection = dedicated_connection(self._options)
        for schema in self._schemas:
            try:
                connection.run(lambda connection, schema=schema: self._keep_history(connection, schema))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - the next round, or another worker, does it
                log.warning(
                    "worker %s could not do its housekeeping: %s", self._name, said(error), extra={"worker": self._name}
                )
        connection.close()

    def _keep_history(self, connection: Connection, schema: str | None) -> None:
        with translated("keep the partitions of the history"):
            rows = connection.execute(statements.keep_history(schema), {"ahead": _AHEAD_DAYS}).all()
            connection.commit()
        for row in rows:
            log.info("worker %s: partition %s %s", self._name, row.partition, row.action, extra={"worker": self._name})
