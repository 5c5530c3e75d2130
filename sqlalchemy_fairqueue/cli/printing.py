"""Output: tables for people, one JSON document for programs, messages on stderr."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sqlalchemy_fairqueue.errors import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNLIMITED = 100_000
"""Columns of what is no terminal: a pipe gets whole lines."""

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60}


def console(*, error: bool = False) -> Console:
    """A console on what stdout or stderr is now; nothing is cut off where no terminal sets a width."""
    file = sys.stderr if error else sys.stdout
    return _Console(file=file, width=None if file.isatty() else _UNLIMITED, highlight=False, soft_wrap=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the frame, which knows the exit status."""
        raise BrokenPipeError


def cell(value: object, style: str = "") -> Text:
    """A value as it stands in a table; None is a dash."""
    return Text(shown(value), style=style if value is not None else "dim")


def shown(value: object) -> str:
    """A value in words."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case timedelta():
            return duration_words(value)
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        case _:
            return clean(str(value))


def counted(number: int, word: str) -> str:
    """A number with its noun: ``1 channel``, ``2 channels``."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def duration_words(duration: timedelta) -> str:
    """A duration in the two largest units that it has: ``3d 4h``, ``12m 05s``, ``3.2s``, ``250ms``."""
    seconds = duration.total_seconds()
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 1:
        return f"{sign}{seconds * 1000:.0f}ms"
    if round(seconds, 1) < _SECONDS["m"]:
        return f"{sign}{seconds:.1f}s"
    whole = round(seconds)
    units = [*_SECONDS.items(), ("s", 1)]
    for (unit, size), (lower, lower_size) in pairwise(units):
        if whole >= size:
            return f"{sign}{whole // size}{unit} {whole % size // lower_size:02}{lower}"
    return f"{sign}{whole}s"


def facts(rows: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one below the other."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value if isinstance(value, Text) else cell(value))
    return made


def print_document(document: Any) -> None:
    """Write the document to stdout: ASCII, so that no locale can spoil it."""
    print(json.dumps(document, default=_plain, indent=2))  # noqa: T201 - the output of a command


def _plain(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            problem = f"{type(value).__name__} has no place in a document"
            raise TypeError(problem)


def print_message(message: str, remedy: str | None = None) -> None:
    """Tell people something on stderr."""
    lines = [f"fairqueue: {clean(message)}"]
    if remedy:
        lines += ["", *(f"    {clean(line)}" if line else "" for line in remedy.splitlines()), ""]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()
