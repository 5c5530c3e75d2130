"""Worker processes, and the certainty that none fails unseen and none stays behind.

Each holds one end of a pipe. What a worker sends after it is ready is a failure. What ends a worker is that the other
end is closed, which the operating system sees to should this process die.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from sqlalchemy import create_engine

from sqlalchemy_fairqueue.demo.failures import DemoError
from sqlalchemy_fairqueue.demo.services import SERVICES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from sqlalchemy import URL

_READY = ""
_PATIENCE = 60.0
_IDLE = 0.02


@dataclass(frozen=True, slots=True)
class Worker:
    """One process, and our end of its pipe."""

    number: int
    process: SpawnProcess
    line: Connection

    def hear(self) -> str:
        """The next thing that the worker says.

        Raises:
            DemoError: The process ended without a word.
        """
        try:
            return str(self.line.recv())
        except EOFError:
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            problem = f"worker {self.number} {how} before the work was done"
            raise DemoError(problem) from None


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers of one run."""

    workers: tuple[Worker, ...]

    def wait_until_ready(self) -> None:
        """Return when every worker is connected and looks for work.

        Raises:
            DemoError: One failed, or is not ready after a minute.
        """
        for worker in self.workers:
            if not worker.line.poll(_PATIENCE):
                problem = (
                    f"worker {worker.number} was not ready after {_PATIENCE:.0f} seconds; is the machine overloaded?"
                )
                raise DemoError(problem)
            if said := worker.hear():
                problem = f"worker {worker.number} could not start:\n{said}"
                raise DemoError(problem)

    def watch(self, seconds: float) -> None:
        """Wait, unless a worker fails.

        Raises:
            DemoError: One did.
        """
        failing = wait([worker.line for worker in self.workers], seconds)
        for worker in self.workers:
            if worker.line in failing:
                problem = f"worker {worker.number} failed:\n{worker.hear()}"
                raise DemoError(problem)


@contextlib.contextmanager
def crew(service: str, url: URL, size: int) -> Iterator[Crew]:
    """Run *size* workers for the time of the block."""
    workers: list[Worker] = []
    try:
        for number in range(1, size + 1):
            workers.append(_start(number, service, url))  # noqa: PERF401 - what has started must be stopped
        yield Crew(tuple(workers))
    finally:
        for worker in workers:
            worker.line.close()
        for worker in workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _start(number: int, service: str, url: URL) -> Worker:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_work, args=(theirs, service, url), name=f"worker-{number}", daemon=True)
    # Ctrl-C reaches every process of the terminal. Workers inherit that they ignore it: the demo ends them.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, handler)
        theirs.close()
    return Worker(number, process, ours)


def _work(line: Connection, service: str, url: URL) -> None:
    """What a worker process does: look for work until the other end of the line is closed."""
    try:
        engine = create_engine(url)
        engine.connect().close()
        gc.freeze()  # parsing makes many objects: the collector need not visit all that was imported, again and again
        line.send(_READY)
        while not line.poll(0 if SERVICES[service].work(engine) else _IDLE):
            pass
        engine.dispose()
    except BaseException:  # noqa: BLE001 - whatever it is, the person at the terminal must see it
        with contextlib.suppress(OSError):  # nobody listens: the demo has ended
            line.send(traceback.format_exc())
        sys.exit(1)
