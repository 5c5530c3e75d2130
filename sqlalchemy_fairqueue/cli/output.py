"""Output of commands: text or one JSON document on stdout, messages and questions on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

from sqlalchemy_fairqueue.cli.errors import CommandError, ExitStatus, usage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console, RenderableType

    Step = Callable[[str, int, int], None]

_UNLIMITED = 100_000
"""The width of a console that is no terminal, so that a pipe gets whole lines."""
_STDOUT = 1

_results: TextIO | None = None
"""The stream of results; None: it is sys.stdout."""


def results() -> TextIO:
    return _results or sys.stdout


@contextmanager
def writing() -> Iterator[TextIO]:
    """Yield the stream of results, then flush it.

    Raise BrokenPipeError if its reader is gone. Raise CommandError if stdout is closed, or is a file on a full disk.
    """
    try:
        yield results()
        results().flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_results()
        raise CommandError(
            f"stdout cannot be written: {error.strerror or error}; only the result is lost", ExitStatus.OUTPUT, "output"
        ) from error


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """Keep stdout for results: everything that the application prints goes to stderr.

    If :func:`prepare_streams` was called, results go to a copy of stdout's descriptor. The descriptor itself leads to
    stderr until the process ends, also for subprocesses, code in C, threads and exit functions.
    """
    global _results
    if _results is not None:
        os.dup2(sys.stderr.fileno(), _STDOUT)
        # sys.stdout gets a new stream, which the application may close. Without a buffer, no flush fails at the exit.
        raw = open(_STDOUT, "wb", buffering=0, closefd=False)  # noqa: SIM115 - it stays open as long as the process
        sys.stdout = io.TextIOWrapper(raw, sys.stderr.encoding, "backslashreplace", write_through=True)
        yield
        return
    _results, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout, _results = _results, None


def console(*, error: bool = False) -> Console:
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            """Leave a broken pipe to the runner, which knows the exit status."""
            raise BrokenPipeError

    file = sys.stderr if error else results()
    return Ours(file=file, width=None if file.isatty() else _UNLIMITED, highlight=False, soft_wrap=True)


@contextmanager
def steps() -> Iterator[Step]:
    """Show progress on stderr: yield a function to call before each part of the work.

    The function takes the name of the part, its number from 0, and the number of all parts.
    """
    out = console(error=True)
    if not out.is_terminal:
        yield lambda name, _number, _count: print_message(name)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda name, number, count: progress.update(task, description=name, completed=number, total=count or None)


def confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage_error(f"{question} Nobody is there to answer; give --yes to do it")
    write_error(f"{_clean(question)} [y/N] ")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was changed", ExitStatus.FOUND, "declined")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command. The keys of its JSON document stay in later versions; new ones may come."""

    document: Mapping[str, Any]
    parts: tuple[RenderableType, ...] = ()
    status: ExitStatus = ExitStatus.OK


def print_result(result: Result, *, json: bool) -> None:
    if json:
        print_json(result.document)
        return
    from rich.text import Text

    out = console()
    with writing():
        for part in result.parts:
            out.print(Text(part) if isinstance(part, str) else part)


def print_error(error: CommandError, *, json: bool) -> None:
    print_message(str(error), error.remedy)
    # If the document cannot be written, stderr has the error.
    with suppress(CommandError):
        if json:
            print_json({"error": error.document()})


def print_json(document: Any) -> None:
    with writing() as out:
        # ASCII, so that every locale can encode it.
        out.write(json.dumps(document, default=_json_value, indent=2) + "\n")


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
    lines = [f"fairqueue: {_clean(message)}"]
    if remedy:
        lines += ["", *(f"    {_clean(line)}" if line else "" for line in remedy.splitlines()), ""]
    write_error("\n".join(lines) + "\n")


def _clean(text: str) -> str:
    from sqlalchemy_fairqueue.texts import clean

    return clean(text)


def write_error(text: str) -> None:
    """Write text to stderr. If stderr is closed, or is a file on a full disk, the text is lost."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def prepare_streams() -> None:
    """Make the standard streams of this process fit for a command.

    ``sys.stdout`` becomes a new stream on a copy of its descriptor. This stream escapes characters that the locale
    cannot encode. Each write to it writes everything or fails, also with PYTHONUNBUFFERED.

    A stream that was closed is opened on the null device, so that no other file gets the stream's descriptor. If stdin
    was closed, it is empty. If stderr was closed, text for it is lost. If stdout was closed, writing to it fails.
    """
    global _results  # noqa: PLW0603 - as sys.stdout, there is one in a process
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - as below
    encoding = "utf-8"
    if sys.stdout is None:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    else:
        encoding, descriptor = sys.stdout.encoding, sys.stdout.fileno()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - as below
    _results = sys.stdout = open(  # noqa: SIM115, PTH123 - it stays open as long as the process; a descriptor has no path
        os.dup(descriptor), "w", encoding=encoding, errors="backslashreplace"
    )


def discard_results() -> None:
    _discard(results())


def _discard(stream: TextIO) -> None:
    """Discard what is left in a buffer, since Python would flush it at the exit, fail, and end with status 120."""
    with suppress(OSError, ValueError):
        target = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, target)
        os.close(null)
