"""``audit``: what operators did to a queue, a channel or a message."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import json
from collections.abc import Sequence
from typing import Annotated, Any

from sqlalchemy_fairqueue.cli.installation import open_queue
from sqlalchemy_fairqueue.cli.options import Options, Spec
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, bold, number_column
from sqlalchemy_fairqueue.values.reports import AuditEntry

AUDITS = Table(
    number_column("at (UTC)", "at"),
    Column("who", style="bold"),
    Column("what"),
    Column("channel", blank=BLANK),
    number_column("message", "message_id", shown=str, blank=BLANK),
    *(Column("", key) for key in ("audit_id", "queue")),
    Column("details", shown=lambda found: json.dumps(found, ensure_ascii=False), blank=BLANK),
)


def list_audits(
    options: Options,
    channel: Annotated[str | None, Spec(metavar="[CHANNEL]")] = None,
    *,
    message: Annotated[int | None, Spec(metavar="ID", min=1)] = None,
    limit: Annotated[int, Spec(min=1, max=10_000)] = 100,
) -> Result:
    """List what operators did to a queue, the last action first, and who did it.

    Commands and the dashboard record their actions; a record is kept for 90 days.

    Options:
        channel: Only what was done to this channel.
        message: Only what was done to this message.
        limit: The most actions to list.
    """
    with open_queue(options) as (installation, queue):
        found = queue.admin.audits(installation.engine, channel=channel, message_id=message, limit=limit)
    nothing = f"nobody did anything to queue {queue.name!r}" + (f", channel {channel!r}" if channel is not None else "")
    nothing += " by a command or the dashboard; what programs do by themselves is not recorded"
    return Result({"queue": queue.name, "audit": AUDITS.documents(found)}, AUDITS.listing(found, nothing))


def audit_parts(found: Sequence[AuditEntry]) -> tuple[Any, ...]:
    return (bold("done by operators"), AUDITS.screen(found)) if found else ()
