"""``purge``: undelivered messages of a channel deleted, in one queue or in all of the schema."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.confirmation import confirm
from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, channel_not_found, open_installation
from sqlalchemy_fairqueue.cli.options import Options, Yes
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import Column, number_column, text_table
from sqlalchemy_fairqueue.formats import plural

_COLUMNS = (
    Column("queue"),
    number_column("deleted"),
    number_column("dead letters deleted"),
    number_column("left leased"),
    number_column("left schedules"),
)


@dataclass(frozen=True, slots=True)
class _Found:
    """A channel of one queue: its undelivered messages, its dead letters, its leased messages, its schedules."""

    queue: Queue
    waiting: int
    dead: int
    leased: int
    schedules: list[str]


def purge(
    options: Options,
    *,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL")],
    all_queues: Annotated[
        bool, typer.Option("--all-queues", help="In every queue of the schema, and dead letters, too.")
    ] = False,
    yes: Yes = False,
) -> Result:
    """Delete every message of a channel that is not delivered yet, for good. Asks, unless --yes is given.

    With --all-queues, for a tenant that leaves: in every queue of the schema, and the dead letters as well. It tells
    what it leaves: messages that consumers hold, and schedules.
    """
    with open_installation(options) as installation:
        if all_queues:
            if options.queue:
                raise usage_error("--all-queues and --queue are given; give one of them")
            return _purge_all(installation, channel, yes=yes)
        queue = installation.single_queue()
        found = queue.channels(installation.engine, channel=channel)
        if not found:
            raise channel_not_found(queue, channel)
        waiting = found[0].undelivered
        what = f"channel {channel!r} of queue {queue.name!r}"
        confirm(f"delete {plural(waiting, 'undelivered message')} of {what} for good?", yes=yes or not waiting)
        purged = queue.purge(installation.engine, channel).purged or 0
    return Result(
        {"queue": queue.name, "channel": channel, "purged": purged},
        (Text(f"{plural(purged, 'message')} of {what} deleted; delivered ones are left to their consumers"),),
    )


def _purge_all(installation: Installation, channel: str, *, yes: bool) -> Result:
    engine = installation.engine
    found = _find(installation, channel)
    if not found:
        raise not_found_error(f"no queue of schema {installation.schema!r} has a channel {channel!r}")
    waiting, dead = sum(one.waiting for one in found), sum(one.dead for one in found)
    counts = f"{plural(waiting, 'undelivered message')} and {plural(dead, 'dead letter')}"
    queues = ", ".join(repr(one.queue.name) for one in found)
    confirm(f"delete {counts} of channel {channel!r} in {queues} for good?", yes=yes or not waiting + dead)
    purged = [
        (one.queue.purge(engine, channel).purged or 0, one.queue.dead_letters.purge(engine, channel=channel))
        for one in found
    ]
    # Read anew: a consumer may have given messages back, or taken some.
    left = {one.queue.name: one for one in _find(installation, channel)}
    rows, documents = [], []
    for one, (messages, letters) in zip(found, purged, strict=True):
        now = left.get(one.queue.name) or _Found(one.queue, 0, 0, 0, [])
        rows.append((one.queue.name, *map(str, (messages, letters, now.leased, len(now.schedules)))))
        documents.append(
            {
                "queue": one.queue.name,
                "purged": messages,
                "dead_letters_purged": letters,
                "leased": now.leased,
                "schedules": now.schedules,
            }
        )
    said = _left_texts(list(left.values()))
    return Result({"channel": channel, "queues": documents}, (text_table(_COLUMNS, rows), *said))


def _find(installation: Installation, channel: str) -> list[_Found]:
    """The queues that have something of the channel, or have had it."""
    found = []
    queues = list(map(installation.queue, installation.queue_names()))
    with installation.engine.connect() as connection:
        for queue in queues:
            channels = queue.channels(connection, channel=channel)
            schedules = [one.name for one in queue.schedules.list(connection, channel=channel)]
            if not channels and not schedules:
                continue
            counts = [(one.undelivered, one.dead, one.leased) for one in channels] or [(0, 0, 0)]
            found.append(_Found(queue, *counts[0], schedules))
    return found


def _left_texts(left: list[_Found]) -> list[Text]:
    """What the command cannot delete, and what to do about it."""
    lines = []
    if any(one.leased for one in left):
        lines.append("leased messages are left to their consumers: cancel them, or run this again when they have ended")
    if any(one.schedules for one in left):
        lines.append("schedules go on: 'fairqueue schedules list' shows them, 'schedules remove' ends them")
    lines.append("results, and attempts in the history, are kept until their retention is over")
    return [Text(line) for line in lines]
