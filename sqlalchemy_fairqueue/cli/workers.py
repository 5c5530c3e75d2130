"""``workers``: the workers of a queue listed, and asked to stop."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

from sqlalchemy_fairqueue.cli.errors import ExitStatus
from sqlalchemy_fairqueue.cli.installation import open_queue
from sqlalchemy_fairqueue.cli.options import Options, Spec
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, number_column

_TABLE = Table(
    Column("worker", "consumer", style="bold"),
    number_column("holds", "leased"),
    number_column("held longest", "message_id", blank=BLANK),
    Column("kind", blank=BLANK),
    Column("channel", blank=BLANK),
    number_column("held since (UTC)", "delivered_at", blank=BLANK),
    number_column("waits until (UTC)", "waiting_until", blank=BLANK),
    number_column("lease ends (UTC)", "expires_at"),
    number_column("asked to stop (UTC)", "stop_requested_at", blank=BLANK),
    Column("", "stop_requested_by"),
)


def list_workers(options: Options) -> Result:
    """List the workers of a queue that have a live lease, those with the most messages first."""
    with open_queue(options) as (installation, queue):
        found = queue.admin.consumers(installation.engine)
    nothing = f"queue {queue.name!r} has no worker with a live lease"
    return Result({"queue": queue.name, "workers": _TABLE.documents(found)}, _TABLE.listing(found, nothing))


def stop_worker(options: Options, name: str, *, by: Annotated[str | None, Spec(metavar="WHO")] = None) -> Result:
    """Ask a worker to stop gracefully, as at a SIGTERM, from all of its queues.

    It hears of it within about two seconds, and its log says who asked. Every worker of the queue with this name stops.
    This command does not wait for it. The exit status is 1 when none of that name has a live lease; the request stands
    all the same.

    Options:
        by: Who asks, for its log. Default: the role.
    """
    with open_queue(options) as (installation, queue):
        alive = queue.admin.stop_worker(installation.engine, name, by=by)
    words = "is asked to stop" if alive else "is asked to stop, but no worker of that name has a live lease"
    return Result(
        {"queue": queue.name, "consumer": name, "alive": alive},
        (f"worker {name!r} of queue {queue.name!r} {words}",),
        ExitStatus.OK if alive else ExitStatus.FOUND,
    )
