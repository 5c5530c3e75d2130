"""``history prune``: housekeeping of the history by hand."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import Column, text_table

_UNFINISHED = {"emptied", "busy"}
"""Actions after which another round is needed: a table was in use."""
_MAX_ROUNDS = 5


def prune_history(
    options: Options,
    *,
    ahead: Annotated[int, typer.Option("--ahead", min=1, max=366, metavar="DAYS", help="Days to have ready.")] = 7,
) -> Result:
    """Drop the days of the history that no queue keeps any longer, and make the partitions of the next days.

    Workers do this by themselves if their role may execute fq_keep_history. While another process does it, this
    command does nothing.
    """
    changes: list[database.PartitionChange] = []
    with open_installation(options) as installation:
        for _ in range(_MAX_ROUNDS):
            with installation.engine.begin() as connection:
                pruned = database.keep_history(connection, installation.schema, days_ahead=ahead)
            changes += pruned
            if not any(change.action in _UNFINISHED for change in pruned):
                break
    done = [change._asdict() for change in changes]
    table = text_table((Column("partition"), Column("action")), [tuple(change) for change in changes])
    return Result({"partitions": done}, (table if changes else Text("nothing was to be done"),))
