"""Starts, watches and ends the worker processes of one run, and leaves none behind.

All workers share one end of a pipe. Each writes when it is ready, and ends when the demo closes the other end or dies.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
from collections.abc import Iterator
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from sqlalchemy import URL, create_engine

from sqlalchemy_fairqueue.demo import fair, fifo
from sqlalchemy_fairqueue.demo.endings import SIGNALS, DemoError

FAIR = "fair queue"
FIFO = "FIFO"
# Modules with the same functions: line_up, run, held.
SERVICES = {FAIR: fair, FIFO: fifo}
_SPAWNING = get_context("spawn")


class Workers:
    """The workers of one run."""

    def __init__(self, service: str, url: URL) -> None:
        self._service = service
        self._url = url
        self._pipe, self._theirs = _SPAWNING.Pipe()
        self._started = 0
        self.ready = 0
        self.members: dict[str, SpawnProcess] = {}

    def add(self) -> None:
        """Start one more worker; block the system's signals in it, since Ctrl-C reaches every process of a terminal."""
        self._started += 1
        name = f"worker {self._started}"
        self.members[name] = _SPAWNING.Process(target=_work, args=(self._service, self._url, name, self._theirs))
        # Start the tracker before the signals are blocked, since its start unblocks them.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.members[name].start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def replace(self, name: str) -> None:
        member = self.members.pop(name)
        member.kill()
        member.join()
        self.add()

    def watch(self, seconds: float) -> None:
        """Wait until a worker is ready or ends, at most *seconds*; raise DemoError if one ended."""
        found = wait([self._pipe, *(member.sentinel for member in self.members.values())], seconds)
        for name, member in self.members.items():
            if member.sentinel in found:
                member.join()
                code = member.exitcode or 0
                how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
                raise DemoError(f"{name} {how} before the work was done")
        if self._pipe in found:
            self.ready += self._pipe.recv()

    def end(self) -> None:
        self._pipe.close()
        for member in self.members.values():
            member.join(5)
            member.kill()
            member.join()


@contextlib.contextmanager
def running_workers(service: str, url: URL, size: int) -> Iterator[Workers]:
    running = Workers(service, url)
    try:
        for _ in range(size):
            running.add()
        while running.ready < size:
            running.watch(1)
        yield running
    finally:
        running.end()


def _work(service: str, url: URL, name: str, pipe: Connection) -> None:
    # The library's log would disturb the screen; the history tells which attempts failed.
    logging.getLogger("sqlalchemy_fairqueue").addHandler(logging.NullHandler())
    engine = create_engine(url)
    engine.connect().close()
    gc.freeze()  # parsing makes many objects: the collector need not visit all that was imported, again and again
    with contextlib.suppress(BrokenPipeError):  # the run has ended meanwhile
        pipe.send(1)
    SERVICES[service].run(engine, name, pipe.poll)
    engine.dispose()
