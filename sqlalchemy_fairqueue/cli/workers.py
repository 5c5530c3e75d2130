"""``workers``: the workers of a queue listed, and asked to stop."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated, Any

from sqlalchemy import Connection

from sqlalchemy_fairqueue.cli.errors import ExitStatus
from sqlalchemy_fairqueue.cli.installation import open_queue
from sqlalchemy_fairqueue.cli.options import Options, Spec
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, bold, number_column
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.messages import find_messages, read_messages
from sqlalchemy_fairqueue.values.reports import MessageDetails

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
    number_column("cancelled", shown=lambda count: str(count or "-"), blank=BLANK),
    *(Column("", key) for key in ("cancelled_at", "host", "pid")),
)
_HANDLERS = Table(
    Column("worker", "consumer", style="bold"),
    number_column("message", "message_id", shown=str),
    Column("kind", blank=BLANK),
    Column("channel"),
    number_column("held since (UTC)", "delivered_at", blank=BLANK),
    number_column("cancelled (UTC)", "cancelled_at", blank=BLANK),
)
_MOST_HANDLERS = 10_000


def list_workers(options: Options, *, handlers: bool = False) -> Result:
    """List the workers of a queue that have a live lease, those with the most messages first.

    A message that was cancelled and is still held has a handler that ignores it: 'workers stop' stops its worker.

    Options:
        handlers: Also each message that a worker holds, since when where the queue records its history.
    """
    held: list[MessageDetails] = []
    with open_queue(options) as (installation, queue):
        found = queue.admin.consumers(installation.engine)
        if handlers:
            with installation.engine.connect() as connection:
                held = _held(connection, Target(installation.schema, queue.name))
    nothing = f"queue {queue.name!r} has no worker with a live lease"
    document: dict[str, Any] = {"queue": queue.name, "workers": _TABLE.documents(found)}
    parts = list(_TABLE.listing(found, nothing))
    if handlers:
        document["handlers"] = _HANDLERS.documents(held)
        parts += [bold("handlers"), *_HANDLERS.listing(held, "none has a message")]
    return Result(document, tuple(parts))


def _held(connection: Connection, target: Target) -> list[MessageDetails]:
    """The messages that consumers hold, by worker, those held longest first."""
    ids, _ = find_messages(connection, target, after=None, limit=_MOST_HANDLERS, scan=_MOST_HANDLERS, state="leased")
    held = read_messages(connection, target, ids, content_bytes=0) if ids else []
    return sorted(
        held, key=lambda one: (one.consumer or "", one.delivered_at is None, one.delivered_at, one.message_id)
    )


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
