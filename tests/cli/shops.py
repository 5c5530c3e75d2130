"""A shop: an application's modules, and workers for them in processes of their own."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.processes import ended
from tests.fixtures.options import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from tests.cli.conftest import Start
    from tests.cli.processes import Outcome, Process
    from tests.fixtures.waits import Waits

QUEUE = "from sqlalchemy_fairqueue import Queue\nqueue = Queue('documents')\n"
THREADS = (
    QUEUE
    + """
from sqlalchemy import text

@queue.handler("parse")
def parse(delivery, session):
    session.execute(text("select pg_advisory_xact_lock_shared(7)"))
    session.execute(text("insert into parsed values (:id)"), {"id": delivery.message_id})

@queue.handler("break")
def broken(delivery):
    raise ValueError("red \\x1b[31m ink")
"""
)
TASKS = THREADS.replace("def parse", "async def parse").replace("session.execute", "await session.execute")
"""The same handlers, async."""


@dataclass(frozen=True, slots=True)
class Shop:
    """Where workers are started and watched."""

    engine: Engine
    write: Callable[[str], str]
    run: Start
    waits: Waits

    def worker(self, source: str, *words: str, **environment: str) -> AbstractContextManager[Process]:
        """A worker for the queue of a module with this source."""
        return self.run("worker", f"{self.write(source)}:queue", *words, **environment)

    def until_handling(self) -> None:
        """Return when a handler waits for the test."""
        self.waits.until(
            "select 1 from pg_stat_activity where wait_event = 'advisory' and datname = current_database()"
        )

    def waiting(self) -> list[tuple[int, int, int | None]]:
        """The messages: id, attempts, lease."""
        with self.engine.connect() as connection:
            rows = connection.exec_driver_sql("select id, attempts, lease_id from fq_message order by id")
            return [(row.id, row.attempts, row.lease_id) for row in rows]


def until_listening(process: Process) -> None:
    """Return when the process has a handler of its own for SIGTERM."""
    pause = threading.Event()
    for _ in range(int(PATIENCE.total_seconds() / 0.01)):
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
        if caught >> (signal.SIGTERM - 1) & 1:
            return
        assert process.poll() is None, process.communicate()
        pause.wait(0.01)
    pytest.fail("the worker never listened to signals")


def stopped(process: Process, number: int = signal.SIGTERM) -> Outcome:
    """Stop a worker by a signal, once it listens to signals."""
    until_listening(process)
    process.send_signal(number)
    return ended(process)
