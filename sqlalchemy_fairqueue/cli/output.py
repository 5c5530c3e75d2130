"""Output of commands: text for people and one JSON document for programs on stdout, messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from sqlalchemy_fairqueue.errors import clean

_UNLIMITED = 100_000
"""Width where stdout is no terminal: a pipe gets whole lines."""


def console(*, error: bool = False) -> Console:
    """A console on the present stdout or stderr; lines are cut only to the width of a terminal."""
    file = sys.stderr if error else sys.stdout
    return _Console(file=file, width=None if file.isatty() else _UNLIMITED, highlight=False, soft_wrap=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the runner, which knows the exit status."""
        raise BrokenPipeError


def print_json(document: Any) -> None:
    """Write the document to stdout: ASCII, so that every locale can encode it."""
    print(json.dumps(document, default=_json_value, indent=2))  # noqa: T201 - the output of a command


def _json_value(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            problem = f"{type(value).__name__} cannot be encoded as JSON"
            raise TypeError(problem)


def print_message(message: str, remedy: str | None = None) -> None:
    """Write a message for people to stderr."""
    lines = [f"fairqueue: {clean(message)}"]
    if remedy:
        lines += ["", *(f"    {clean(line)}" if line else "" for line in remedy.splitlines()), ""]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


def prepare_stdout() -> None:
    """Make stdout write everything or fail, and escape characters that the locale cannot encode.

    With PYTHONUNBUFFERED, Python drops the rest of a write that was done in part, for example when the reader of a
    pipe goes away meanwhile.
    """
    sys.stdout = open(  # noqa: SIM115 - it stays open as long as the process; a descriptor has no path
        sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, errors="backslashreplace", closefd=False
    )


def discard_stdout() -> None:
    """Discard what is left in the buffer: Python flushes stdout once more when it exits, and would complain."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, target)
    os.close(null)
