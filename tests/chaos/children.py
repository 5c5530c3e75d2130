"""Worker processes as a test sees them."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import URL

from tests.chaos import program
from tests.fixtures.options import PATIENCE

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

# Processes are forked from one that has imported everything and done nothing: that takes milliseconds.
_NURSERY = multiprocessing.get_context("forkserver")
_NURSERY.set_forkserver_preload([program.__name__])

StartChild = Callable[..., "Child"]


@dataclass(frozen=True, slots=True)
class Child:
    """One worker process."""

    name: str
    process: ForkServerProcess
    log: Path
    _pipe: "Connection[Any, Any]"
    _said: "SimpleQueue[dict[str, Any]]"

    def hear(self, key: str) -> Any:
        """Wait until it says something of this kind; what it says of others is passed by."""
        __tracebackhide__ = True
        while True:
            try:
                said = self._said.get(timeout=PATIENCE.total_seconds())
            except Empty:
                pytest.fail(f"{self.name} did not tell of {key!r} in {PATIENCE}:\n{self.log.read_text()[-4000:]}")
            if "ended" in said and key != "ended":
                pytest.fail(f"{self.name} ended before it told of {key!r}:\n{self.log.read_text()[-4000:]}")
            if key in said:
                return said[key]

    @property
    def is_launched(self) -> bool:
        """Whether it has come to work, asked once only when it is over."""
        while not self._said.empty():
            if "launched" in self._said.get():
                return True
        return False

    def reaches(self, *stages: str) -> None:
        """Wait until it stands at each of these stages, as often as they are named."""
        __tracebackhide__ = True
        missing = list(stages)
        while missing:
            stage = self.hear("at")
            if stage in missing:
                missing.remove(stage)

    def go(self) -> None:
        """Let it go on, and stop nowhere any more."""
        self._pipe.send("go")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill it, and return when it is dead."""
        self.process.kill()
        self.process.join()

    def ended(self) -> int | None:
        """Wait for its end; its status."""
        self.process.join(PATIENCE.total_seconds())
        return self.process.exitcode


def start_child(url: URL, folder: Path, name: str, **asked: Any) -> Child:
    """Start a worker process on a database; see ``program`` for what can be asked."""
    arguments = {"url": url.render_as_string(hide_password=False), "name": name, **asked}
    log = folder / f"{name}.log"
    log.touch()
    ours, theirs = _NURSERY.Pipe()
    process = _NURSERY.Process(target=program.main, args=(theirs, str(log)), kwargs=arguments, name=name, daemon=True)
    process.start()
    theirs.close()
    said: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def listen() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                said.put(ours.recv())
        said.put({"ended": True})

    threading.Thread(target=listen, daemon=True).start()
    return Child(name, process, log, ours, said)
