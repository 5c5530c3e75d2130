"""Errors and attempts of a message on the screen: a traceback on its own lines, attempts as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from sqlalchemy_fairqueue.cli.tables import BLANK, Column, number_column, text_table
from sqlalchemy_fairqueue.texts import clean, last_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from sqlalchemy_fairqueue.values.reports import AttemptDetails

_COLUMNS = (
    number_column("attempt"),
    Column("outcome"),
    number_column("started (UTC)"),
    number_column("took"),
    Column("consumer", blank=BLANK),
    Column("error", blank=BLANK),
)


def error_parts(error: str | None) -> tuple[RenderableType, ...]:
    """A heading and an error, each of its lines on one of its own."""
    if error is None:
        return ()
    lines = (clean(line.expandtabs()) for line in error.splitlines())
    return (Text("error", style="bold"), Text("\n".join(lines)))


def attempts_parts(attempts: Sequence[AttemptDetails]) -> tuple[RenderableType, ...]:
    """A heading and a table of attempts that ended; nothing if there are none."""
    if not attempts:
        return ()
    rows = [
        (one.attempt, one.outcome, one.started_at, one.finished_at - one.started_at, one.consumer,
         last_line(one.error))
        for one in attempts
    ]  # fmt: skip
    return (Text("attempts before", style="bold"), text_table(_COLUMNS, rows))


def attempts_document(attempts: Sequence[AttemptDetails]) -> list[dict[str, Any]]:
    """Attempts as JSON documents."""
    return [asdict(one) for one in attempts]
