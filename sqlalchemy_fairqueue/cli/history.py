"""``history prune``: housekeeping of the history by hand."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import Column, text_table
from sqlalchemy_fairqueue.statements import keep_history

_UNFINISHED = {"emptied", "busy"}
"""Actions after which another round is needed: a table was in use."""
_MAX_ROUNDS = 5


def prune_history(
    options: Options,
    *,
    ahead: Annotated[int, typer.Option("--ahead", min=1, max=366, metavar="DAYS", help="Days to have ready.")] = 7,
) -> Result:
    """Drop the days of the history that no queue keeps any longer, and make the partitions of the next days.

    Workers do this by themselves if their role owns the tables. While another process does it, this command does
    nothing.
    """
    rows: list[Any] = []
    with open_installation(options) as installation:
        for _ in range(_MAX_ROUNDS):
            with installation.engine.begin() as connection:
                pruned = connection.execute(keep_history(installation.schema), {"ahead": ahead}).all()
            rows += pruned
            if not any(row.action in _UNFINISHED for row in pruned):
                break
    done = [{"partition": row.partition, "action": row.action} for row in rows]
    table = text_table((Column("partition"), Column("action")), [(row.partition, row.action) for row in rows])
    return Result({"partitions": done}, (table if rows else Text("nothing was to be done"),))
