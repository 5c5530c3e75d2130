"""Progress of a command that takes several steps, on stderr."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sqlalchemy_fairqueue.cli.output import console, print_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Step = Callable[[str, int, int], None]


@contextlib.contextmanager
def steps() -> Iterator[Step]:
    """A function to call before each step, with its name, its number from 0 and the number of all steps.

    In a terminal it moves a bar; else each step is a line.
    """
    out = console(error=True)
    if not out.is_terminal:
        yield lambda name, _number, _count: print_message(name)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda name, number, count: progress.update(task, description=name, completed=number, total=count or None)
