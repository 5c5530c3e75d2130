"""``workers``: the workers of a queue listed, and asked to stop."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.errors import ExitStatus
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, cell, number_column, text_table

_COLUMNS = (
    Column("worker"),
    number_column("holds"),
    number_column("held longest", blank=BLANK),
    Column("channel", blank=BLANK),
    number_column("waits until (UTC)", blank=BLANK),
    number_column("lease ends (UTC)"),
    number_column("asked to stop (UTC)", blank=BLANK),
)


def list_workers(options: Options) -> Result:
    """List the workers of a queue that have a live lease, those with the most messages first."""
    with open_installation(options) as installation:
        queue = installation.single_queue()
        found = queue.admin.consumers(installation.engine)
    rows = [
        [
            cell(one.consumer, "bold"),
            cell(one.leased),
            cell(one.message_id),
            cell(one.channel),
            cell(one.waiting_until),
            cell(one.expires_at),
            cell(one.stop_requested_at),
        ]
        for one in found
    ]
    documents = [
        {
            "consumer": one.consumer,
            "leased": one.leased,
            "message_id": one.message_id,
            "kind": one.kind,
            "channel": one.channel,
            "delivered_at": one.delivered_at,
            "waiting_until": one.waiting_until,
            "expires_at": one.expires_at,
            "stop_requested_at": one.stop_requested_at,
            "stop_requested_by": one.stop_requested_by,
        }
        for one in found
    ]
    nothing = Text(f"queue {queue.name!r} has no worker with a live lease")
    return Result({"queue": queue.name, "workers": documents}, (text_table(_COLUMNS, rows) if rows else nothing,))


def stop_worker(
    options: Options,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="WHO", help="Who asks, for its log. Default: the role.", show_default=False),
    ] = None,
) -> Result:
    """Ask a worker to stop gracefully, as at a SIGTERM, from all of its queues.

    It hears of it within about two seconds, and its log says who asked. Every worker of the queue with this name stops.
    This command does not wait for it. The exit status is 1 when none of that name has a live lease; the request stands
    all the same.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue()
        alive = queue.admin.stop_worker(installation.engine, name, by=by)
    words = "is asked to stop" if alive else "is asked to stop, but no worker of that name has a live lease"
    return Result(
        {"queue": queue.name, "consumer": name, "alive": alive},
        (Text(f"worker {name!r} of queue {queue.name!r} {words}"),),
        ExitStatus.OK if alive else ExitStatus.FOUND,
    )
