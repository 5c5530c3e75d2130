"""One running script of a contestant, spoken to line by line."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
from typing import IO, TYPE_CHECKING, Any, Self

from tests.bench.field.environments import environment

if TYPE_CHECKING:
    from tests.bench.field.environments import Contestant

_PATIENCE = 120.0


class Failed(Exception):
    """A contestant's script failed, or did not answer in time."""


class Script:
    """A process that speaks for a contestant; ends with the block."""

    def __init__(self, python: str, contestant: Contestant, url: str) -> None:
        self._name = contestant.name
        self._complaints: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, "-m", f"tests.bench.peers.{contestant.script}", url, *contestant.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env=environment(),
        )

    def __enter__(self) -> Self:
        """Nothing but the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, gently or not."""
        try:
            self._process.communicate('{"do": "quit"}\n', timeout=10)
        except (subprocess.TimeoutExpired, BrokenPipeError, ValueError):
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                # What was not sent need not be.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._complaints.close()

    def tell(self, do: str, **command: object) -> None:
        """Send a command, whose answer `answer` waits for."""
        if self._process.stdin is None:
            raise AssertionError
        try:
            self._process.stdin.write(json.dumps({"do": do, **command}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._last_words()) from None

    def answer(self) -> dict[str, Any]:
        """The answer to the oldest command that has none yet.

        Raises:
            Failed: it failed, or none came for two minutes.
        """
        if self._process.stdout is None:
            raise AssertionError
        # A process that hangs is killed, which ends the reading.
        killer = threading.Timer(_PATIENCE, self._process.kill)
        killer.start()
        line = self._process.stdout.readline()
        killer.cancel()
        if not line:
            raise Failed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self._name}: {answer['error'].strip()}")
        return answer

    def ask(self, do: str, **command: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.tell(do, **command)
        return self.answer()

    def _last_words(self) -> str:
        self._process.wait(10)
        self._complaints.seek(0)
        return f"{self._name} ended or hung: {self._complaints.read()[-600:]}"
