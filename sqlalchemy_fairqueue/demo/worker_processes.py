"""Worker processes of one run: none fails unseen, and none is left behind.

Each holds one end of a pipe. What a worker sends after it is ready is a failure. What ends a worker is that the other
end is closed, which the operating system sees to should this process die.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from sqlalchemy import create_engine

from sqlalchemy_fairqueue.demo.errors import DemoError
from sqlalchemy_fairqueue.demo.services import SERVICES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from sqlalchemy import URL

_READY = ""
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One process, and our end of its pipe."""

    name: str
    process: SpawnProcess
    pipe: Connection

    def hear(self) -> str:
        """The next thing that the worker says.

        Raises:
            DemoError: The process ended without a word.
        """
        try:
            return str(self.pipe.recv())
        except EOFError:
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            problem = f"{self.name} {how} before the work was done"
            raise DemoError(problem) from None

    @contextlib.contextmanager
    def stopped(self) -> Iterator[int]:
        """Let the process stand still for the time of the block, which is given its id."""
        pid = self.process.pid
        assert pid is not None  # noqa: S101 - it was started
        os.kill(pid, signal.SIGSTOP)
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGCONT)


class WorkerProcesses:
    """The workers of one run.

    Args:
        service: What they work for.
        url: Its database.
    """

    def __init__(self, service: str, url: URL) -> None:
        self.service = service
        self._url = url
        self._started = 0
        self.members: list[WorkerProcess] = []

    def add(self) -> WorkerProcess:
        """Start one more worker."""
        self._started += 1
        member = _start(f"worker {self._started}", self.service, self._url)
        self.members.append(member)
        return member

    def remove(self, member: WorkerProcess) -> None:
        """Forget a worker that has been killed."""
        member.process.join()
        member.pipe.close()
        self.members.remove(member)

    def wait_until_ready(self) -> None:
        """Return when every worker is connected and looks for work.

        Raises:
            DemoError: One failed, or is not ready after a minute.
        """
        for member in self.members:
            if not member.pipe.poll(_PATIENCE):
                problem = f"{member.name} was not ready after {_PATIENCE:.0f} seconds; is the machine overloaded?"
                raise DemoError(problem)
            _must_be_ready(member)

    def watch(self, seconds: float) -> None:
        """Wait, at most so long; less if a worker has something to say.

        Raises:
            DemoError: One failed.
        """
        speaking = wait([member.pipe for member in self.members], seconds)
        for member in self.members:
            if member.pipe in speaking:
                _must_be_ready(member)


def _must_be_ready(member: WorkerProcess) -> None:
    if said := member.hear():
        problem = f"{member.name} failed:\n{said}"
        raise DemoError(problem)


@contextlib.contextmanager
def running_workers(service: str, url: URL, size: int) -> Iterator[WorkerProcesses]:
    """Run *size* workers for the time of the block."""
    running = WorkerProcesses(service, url)
    try:
        for _ in range(size):
            running.add()
        yield running
    finally:
        for member in running.members:
            member.pipe.close()
        for member in running.members:
            member.process.join(5)
            if member.process.is_alive():
                member.process.kill()
                member.process.join()


def _start(name: str, service: str, url: URL) -> WorkerProcess:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_work, args=(theirs, service, url, name), name=name, daemon=True)
    # Ctrl-C reaches every process of the terminal. Workers inherit that they ignore it: the demo ends them.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, handler)
        theirs.close()
    return WorkerProcess(name, process, ours)


def _work(pipe: Connection, service: str, url: URL, name: str) -> None:
    """Work of a worker process: parse files until the other end of the pipe is closed."""
    try:
        # What the library logs would be printed into the table; what matters of it the history tells.
        logging.getLogger("sqlalchemy_fairqueue").addHandler(logging.NullHandler())
        engine = create_engine(url)
        engine.connect().close()
        gc.freeze()  # parsing makes many objects: the collector need not visit all that was imported, again and again
        pipe.send(_READY)
        SERVICES[service].run(engine, name, pipe.poll)
        engine.dispose()
    except BaseException:  # noqa: BLE001 - the person at the terminal must see every failure
        with contextlib.suppress(OSError):  # nobody listens: the demo has ended
            pipe.send(traceback.format_exc())
        sys.exit(1)
