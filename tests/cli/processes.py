"""Outcomes of command lines, and processes that run them."""

import json
import subprocess
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.fixtures.forks import Fork

Process = subprocess.Popen[str] | Fork


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a command line."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error in the document."""
        return self.document["error"]

    def rows(self) -> list[list[str]]:
        """The lines of stdout as words, those of each column apart from the next by two blanks."""
        return [[word.strip() for word in line.split("  ") if word.strip()] for line in self.out.splitlines()]


def ended(process: Process) -> Outcome:
    """Wait for the end of a process."""
    out, err = process.communicate(timeout=60)
    return Outcome(process.wait(), out, err)


def outcome(run: AbstractContextManager[Process]) -> Outcome:
    """The outcome of a process that ends by itself."""
    with run as process:
        return ended(process)
