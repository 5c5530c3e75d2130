"""Worker processes of one run: none fails unseen, and none is left behind.

The first line of a worker's output says that it is ready; anything else is a failure. A worker ends when its input
ends, even if the demo's process dies.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from sqlalchemy import URL, create_engine

from sqlalchemy_fairqueue.demo import fair, fifo
from sqlalchemy_fairqueue.demo.endings import DemoError

FAIR = "fair queue"
FIFO = "FIFO"
_READY = "ready\n"
_PATIENCE = 60.0
# Modules with the same functions: line_up, run, held.
SERVICES = {FAIR: fair, FIFO: fifo}


class Workers:
    """The workers of one run."""

    def __init__(self, service: str, url: URL) -> None:
        self._service = service
        self._url = url
        self._started = 0
        self.members: dict[str, Any] = {}  # Popen; its pipes are there

    def add(self) -> None:
        """Start one more worker, in a session of its own, since Ctrl-C reaches every process of the terminal."""
        self._started += 1
        name = f"worker {self._started}"
        command = [sys.executable, "-W", "ignore", "-m", __name__, self._service, name]
        self.members[name] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self.members[name].stdin.write(json.dumps([*self._url]) + "\n")  # as text it would lose what is empty

    def replace(self, name: str) -> None:
        """Kill a worker by SIGKILL and start another, as a supervisor does."""
        with self.members.pop(name) as member:
            member.kill()
        self.add()

    def watch(self, seconds: float) -> int:
        """Wait until a worker writes something, at most this long. Return how many have said that they are ready.

        Raises:
            DemoError: A worker failed.
        """
        speaking = select.select([member.stdout for member in self.members.values()], [], [], seconds)[0]
        for name, member in self.members.items():
            if member.stdout in speaking and (said := member.stdout.readline()) != _READY:
                said += member.stdout.read()
                code = member.wait()
                how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
                problem = f"{name} {how} before the work was done\n{said}".strip()
                raise DemoError(problem)
        return len(speaking)


@contextlib.contextmanager
def running_workers(service: str, url: URL, size: int) -> Iterator[Workers]:
    """Run *size* workers during the block, which begins when all are ready.

    Raises:
        DemoError: A worker failed, or none was ready after a minute.
    """
    running, ready = Workers(service, url), 0
    try:
        for _ in range(size):
            running.add()
        while ready < size:
            if not (said := running.watch(_PATIENCE)):
                raise DemoError(f"a worker was not ready after {_PATIENCE:.0f} seconds; is the machine overloaded?")
            ready += said
        yield running
    finally:
        for member in running.members.values():
            member.stdin.close()
        for member in running.members.values():
            with member:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    member.wait(5)
                member.kill()


def _work() -> None:
    """Parse files until the input ends, as a worker process."""
    service, name = sys.argv[1:]
    # Any output counts as a failure, so the log is dropped; the history tells what matters.
    logging.getLogger("sqlalchemy_fairqueue").addHandler(logging.NullHandler())
    engine = create_engine(URL.create(*json.loads(sys.stdin.readline())))
    engine.connect().close()
    gc.freeze()  # parsing makes many objects: the collector need not visit all that was imported, again and again
    print(_READY, end="", flush=True)
    SERVICES[service].run(engine, name, lambda seconds: bool(select.select([sys.stdin], [], [], seconds)[0]))
    engine.dispose()


if __name__ == "__main__":
    _work()
