"""``dead quarantine``: messages that could not be delivered, listed, released and deleted."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.confirmation import confirm
from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.formats import plural
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, Yes
from sqlalchemy_fairqueue.cli.results import ExitStatus, Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, number_column, text_table
from sqlalchemy_fairqueue.values import QuarantinedInfo

_COLUMNS = (
    number_column("id"),
    Column("channel", blank=BLANK),
    Column("kind", blank=BLANK),
    number_column("bytes", blank=BLANK),
    Column("unreadable", blank=BLANK),
    number_column("set aside (UTC)"),
    Column("reason"),
)


def quarantine(
    options: Options,
    *,
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="These.", show_default=False)] = None,
    release: Annotated[bool, typer.Option("--release", help="Put them back into their channels.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them for good.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="At most so many.")] = 100,
    yes: Yes = False,
) -> Result:
    """List the messages that could not be delivered and that no dead letter can hold; release or delete them.

    The exit status is 1 when a named one was neither released nor deleted.
    """
    if bool(ids) != (release != delete) or (release and delete):
        raise usage_error("give ids and one of --release and --delete, or neither, to list them")
    with open_installation(options) as installation:
        queue = installation.single_queue()
        if not ids:
            found = queue.quarantined(installation.engine, limit=limit)
            return Result(
                {"queue": queue.name, "quarantined": [quarantined_document(one) for one in found]},
                (_table(queue.name, found),),
            )
        if delete:
            confirm(f"delete {plural(len(set(ids)), 'message')} of queue {queue.name!r} for good?", yes=yes)
        end = queue.release_quarantined if release else queue.purge_quarantined
        outcomes = end(installation.engine, ids)
    wanted = "released" if release else "deleted"
    bad = any(outcome != wanted for outcome in outcomes.values())
    return Result(
        {"queue": queue.name, "outcomes": [{"message_id": one, "outcome": what} for one, what in outcomes.items()]},
        tuple(Text(f"message {one}: {what}") for one, what in outcomes.items()),
        ExitStatus.FOUND if bad else ExitStatus.OK,
    )


def quarantined_document(one: QuarantinedInfo) -> dict[str, Any]:
    """A quarantined message as a JSON document."""
    return {
        "message_id": one.message_id,
        "channel": one.channel,
        "kind": one.kind,
        "content_size": one.content_size,
        "headers_size": one.headers_size,
        "enqueued_at": one.enqueued_at,
        "attempts": one.attempts,
        "deliveries": one.deliveries,
        "unreadable": list(one.unreadable),
        "reason": one.reason,
        "set_aside_at": one.set_aside_at,
    }


def _table(queue: str, found: list[QuarantinedInfo]) -> Any:
    if not found:
        return Text(f"queue {queue!r} has no messages in quarantine")
    rows = [
        (str(one.message_id), one.channel, one.kind, None if one.content_size is None else f"{one.content_size:,}",
         ", ".join(one.unreadable) or None, one.set_aside_at, one.reason)
        for one in found
    ]  # fmt: skip
    return text_table(_COLUMNS, rows)
