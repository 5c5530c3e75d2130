"""``history prune``: housekeeping of the history by hand."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import Column, text_table
from sqlalchemy_fairqueue.database.calls import call

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
    changes: list[tuple[str, str]] = []
    with open_installation(options) as installation:
        for _ in range(_MAX_ROUNDS):
            with installation.engine.begin() as connection:
                prune = call(installation.schema, "fq_keep_history", "keep the partitions of the history", ahead=ahead)
                pruned = [(row.partition, row.action) for row in prune.rows(connection)]
            changes += pruned
            if not any(action in _UNFINISHED for _, action in pruned):
                break
    done = [{"partition": partition, "action": action} for partition, action in changes]
    table = text_table((Column("partition"), Column("action")), changes)
    return Result({"partitions": done}, (table if changes else Text("nothing was to be done"),))
