"""``workers``: list the workers of a queue, and ask them to stop."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import shlex
from dataclasses import asdict

from sqlalchemy_fairqueue.cli.errors import ExitStatus
from sqlalchemy_fairqueue.cli.installation import acting, in_queue, open_queue
from sqlalchemy_fairqueue.cli.options import By, Options, Page
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, bold, number_column
from sqlalchemy_fairqueue.formats import plural

_TABLE = Table(
    Column("worker", "consumer", style="bold"),
    number_column("holds", "leased"),
    Column("host", blank=BLANK),
    number_column("pid", shown=str, blank=BLANK),
    Column("version", blank=BLANK),
    number_column("concurrency", blank=BLANK),
    number_column("waits until (UTC)", "waiting_until", blank=BLANK),
    number_column("lease ends (UTC)", "expires_at"),
    number_column("asked to stop (UTC)", "stop_requested_at", blank=BLANK),
    number_column("cancelled", shown=lambda count: str(count or "-"), blank=BLANK),
    *(
        Column("", key)
        for key in ("stop_requested_by", "cancelled_at", "message_id", "kind", "channel", "delivered_at")
    ),
)
_HANDLERS = Table(
    Column("worker", "consumer", style="bold"),
    number_column("message", "message_id", shown=str),
    Column("kind"),
    Column("channel"),
    number_column("held for", "held_seconds", blank=BLANK),
    number_column("cancelled (UTC)", "cancelled_at", blank=BLANK),
    Column("", "delivered_at"),
)


def list_workers(options: Options, *, limit: Page = 100) -> Result:
    """List the workers of a queue with an unexpired lease, those with the most messages first, and what each holds.

    Workers report their version and concurrency within seconds; other consumers report neither. A message that a worker
    holds is being handled, or waits for its handler. If the queue records its history, the list shows how long the
    worker has held each message. If a worker holds a cancelled message for long, the message's handler ignores the
    cancellation: 'workers stop' stops the worker.

    Options:
        limit: Show at most this many messages of each worker, those held longest.
    """
    with open_queue(options) as (installation, queue):
        found = queue.admin.consumers(installation.engine, handlers=min(limit, 10_000))
        now = installation.now()
    held = [
        {"consumer": one.consumer, "held_seconds": each.delivered_at and now - each.delivered_at} | asdict(each)
        for one in found
        for each in one.handlers
    ]
    document = {"queue": queue.name, "workers": _TABLE.documents(found), "handlers": _HANDLERS.documents(held)}
    parts = _TABLE.listing(found, f"queue {queue.name!r} has no worker with a live lease")
    parts += (bold("messages held"), _HANDLERS.screen(held)) if held else ()
    parts += tuple(
        f"{plural(one.cancelled, 'message')} cancelled, and the handler goes on: "
        f"'fairqueue workers stop {shlex.quote(one.consumer)} {in_queue(queue)}' stops the worker"
        for one in found
        if one.cancelled and one.stop_requested_at is None
    )
    return Result(document, parts)


def stop_worker(options: Options, name: str, *, by: By = None) -> Result:
    """Ask a worker to stop gracefully, as at a SIGTERM: it ends its work for all of its queues.

    Every worker of this name that serves the queue hears of the request within about two seconds, and logs who asked.
    This command records the request and does not wait. If no consumer of this name has an unexpired lease in the queue,
    the exit status is 1; the request is recorded all the same. A worker that waits for work has a lease without
    messages, unless the worker has just started or does not listen.
    """
    with (
        open_queue(options) as (installation, queue),
        acting(installation, queue, "stop worker", by, details={"worker": name}) as connection,
    ):
        alive = queue.admin.stop_worker(connection, name, by=by)
    words = "is asked to stop" if alive else "is asked to stop, but no worker of that name has a live lease"
    return Result(
        {"queue": queue.name, "consumer": name, "alive": alive},
        (f"worker {name!r} of queue {queue.name!r} {words}",),
        ExitStatus.OK if alive else ExitStatus.FOUND,
    )
