"""What some worker does now and then for all: partitions of the history made ahead, and dropped when they are old.

The SQL function lets one at a time do it, and does a piece again that somebody left; so it does not matter which
workers do it, how often, or whether one dies in it. It runs in a thread of its own, so that no lease waits for it.
"""

from __future__ import annotations

import random
import threading
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import said, translated
from sqlalchemy_fairqueue.worker.connection import line
from sqlalchemy_fairqueue.worker.logs import log

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Engine

    from sqlalchemy_fairqueue.asynchronous import AsyncEngine

_EVERY = 3600.0
_AHEAD_DAYS = 7


class Housekeeping:
    """The chores of one worker.

    Args:
        engine: How to connect.
        schemas: Where the queues are installed.
        name: The worker's name, for the log.
        first: Seconds until the first turn, about.
    """

    def __init__(
        self, engine: Engine | AsyncEngine, schemas: Iterable[str | None], name: str, first: float = 60.0
    ) -> None:
        self._engine = engine
        self._schemas = sorted(set(schemas), key=lambda schema: schema or "")
        self._name = name
        self._thread: threading.Thread | None = None
        self._next_at = monotonic() + first * random.uniform(0, 1)  # noqa: S311 - spreads the load

    def turn(self, now: float) -> None:
        """Begin a turn if one is due."""
        if now < self._next_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._next_at = now + _EVERY * random.uniform(0.5, 1.5)  # noqa: S311 - spreads the load
        self._thread = threading.Thread(target=self.run, name=f"{self._name}-housekeeping", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Do all chores once."""
        own = line(self._engine)
        for schema in self._schemas:
            try:
                own.run(lambda connection, schema=schema: self._keep_history(connection, schema))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - the next turn, or another worker, does it
                log.warning(
                    "worker %s could not do its housekeeping: %s", self._name, said(error), extra={"worker": self._name}
                )
        own.close()

    def _keep_history(self, connection: Connection, schema: str | None) -> None:
        with translated("keep the partitions of the history"):
            rows = connection.execute(statements.keep_history(schema), {"ahead": _AHEAD_DAYS}).all()
            connection.commit()
        for row in rows:
            log.info("worker %s: partition %s %s", self._name, row.partition, row.action, extra={"worker": self._name})
