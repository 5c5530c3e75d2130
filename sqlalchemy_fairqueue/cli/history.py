"""``history``: its housekeeping by hand."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.sites import site_of
from sqlalchemy_fairqueue.cli.tables import Column, listing
from sqlalchemy_fairqueue.statements import keep_history

_UNFINISHED = {"emptied", "busy"}
"""A table was in use: the next round goes on."""
_ROUNDS = 5


def prune_history(
    options: Options,
    *,
    ahead: Annotated[int, typer.Option("--ahead", min=1, max=366, metavar="DAYS", help="Days to have ready.")] = 7,
) -> Answer:
    """Drop the days of the history that are older than any queue keeps them, and make the partitions of the next ones.

    Workers do this by themselves; it is for where their role does not own the tables. While another does it, nothing
    is done.
    """
    rows: list[Any] = []
    with site_of(options) as site:
        for _ in range(_ROUNDS):
            with site.engine.begin() as connection:
                round_ = connection.execute(keep_history(site.schema), {"ahead": ahead}).all()
            rows += round_
            if not any(row.action in _UNFINISHED for row in round_):
                break
    done = [{"partition": row.partition, "action": row.action} for row in rows]
    shown = listing((Column("partition"), Column("action")), [(row.partition, row.action) for row in rows])
    return Answer({"partitions": done}, (shown if rows else Text("nothing was to be done"),))
