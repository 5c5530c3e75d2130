"""``limits`` and ``configure limit``: limits that several queues draw from."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.policies import FieldOptions, flag_option, rate_document, with_options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, cell, number_column, text_table
from sqlalchemy_fairqueue.values.reports import SharedLimit
from sqlalchemy_fairqueue.values.settings import SETTINGS

_COLUMNS = (
    Column("limit"),
    number_column("leased"),
    number_column("max concurrency", BLANK),
    number_column("rate", BLANK),
    number_column("burst", BLANK),
    Column("queues", blank=BLANK),
)


@with_options(
    {
        name: replace(SETTINGS[name], help=SETTINGS[name].help.replace("the whole queue", "all its queues"))
        for name in ("max_concurrency", "rate")
    }
)
class LimitOptions(FieldOptions):
    """Options that change a shared limit."""


def limits(options: Options) -> Result:
    """Show the limits that several queues share, what is leased of them, and which queues draw from each."""
    with open_installation(options) as installation:
        return _result(_queue(installation.schema).limits.list(installation.engine))


def configure_limit(
    options: Options,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    limits: LimitOptions,
    remove: Annotated[bool, flag_option("--remove", "Remove it; no queue may draw from it.")] = False,
) -> Result:
    """Make a limit that several queues share, or change it; without an option, show it.

    Options that are not given leave the limit as it is. Queues draw from it by: configure queue --limit NAME.
    """
    wanted = limits.changes()
    if remove and wanted:
        raise usage_error("--remove and a limit contradict each other; give one of them")
    with open_installation(options) as installation:
        queue = _queue(installation.schema)
        if remove:
            queue.limits.remove(installation.engine, name)
        elif wanted:
            queue.limits.configure(installation.engine, name, **wanted)
        return _result(queue.limits.list(installation.engine, name))


def _queue(schema: str) -> Queue:
    # Limits are of the installation: any queue of it asks for them.
    return Queue("limits", schema=schema)


def _result(found: list[SharedLimit]) -> Result:
    rows = [
        [
            cell(one.name, "bold"),
            cell(one.current_concurrency),
            cell(one.max_concurrency),
            cell(one.rate and one.rate.per_time()),
            cell(one.rate and one.rate.burst),
            cell(", ".join(one.queues)),
        ]
        for one in found
    ]
    documents = [
        {
            "name": one.name,
            "max_concurrency": one.max_concurrency,
            "rate": rate_document(one.rate),
            "current_concurrency": one.current_concurrency,
            "queues": list(one.queues),
        }
        for one in found
    ]
    return Result({"limits": documents}, (text_table(_COLUMNS, rows) if rows else Text("no shared limits"),))
