"""``messages``: messages that are not settled, listed and shown, with the reason for which each waits."""

# Annotations are read when the program starts, so that they must not be postponed.
import json
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.errors import not_found_error
from sqlalchemy_fairqueue.cli.installation import Installation, open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, key_values, number_column, text_table
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.figures import Reason, tenants_of
from sqlalchemy_fairqueue.values import MessageDetails

_PLACES = 1000
"""Places in a channel that are counted; beyond, only that they are beyond."""

_COLUMNS = (
    number_column("id"),
    Column("state"),
    Column("kind", blank=BLANK),
    Column("key", blank=BLANK),
    number_column("attempts"),
    number_column("due (UTC)"),
    Column("consumer", blank=BLANK),
    Column("error", blank=BLANK),
)


def list_messages(
    options: Options,
    *,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", show_default=False)],
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="At most so many that wait, or are out.")
    ] = 100,
) -> Result:
    """List the messages of a channel: first those that consumers hold, then the others in the order of delivery."""
    with open_installation(options) as installation:
        queue = installation.single_queue()
        now = installation.now()
        found = queue.messages(installation.engine, channel=channel, limit=limit)
    rows = [
        (str(one.message_id), one.state(now), one.kind, one.key, f"{one.attempts}/{one.max_attempts}", one.due_at,
         one.consumer, None if one.error is None else one.error.strip().rpartition("\n")[2])
        for one in found
    ]  # fmt: skip
    nothing = Text(f"channel {channel!r} of queue {queue.name!r} has no messages")
    return Result(
        {"queue": queue.name, "channel": channel, "messages": [_document(one, now) for one in found]},
        (text_table(_COLUMNS, rows) if found else nothing,),
    )


def show_message(options: Options, *, message_id: Annotated[int, typer.Argument(metavar="ID", min=1)]) -> Result:
    """Show a message that is not settled: its state, why it waits, its place in its channel, its payload.

    The payload is decoded as JSON, or by the codec of the application's queue if --app names one.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue()
        found = queue.message(installation.engine, message_id)
        if found is None:
            raise not_found_error(
                f"queue {queue.name!r} has no message {message_id}: it is done, withdrawn, of another queue, or dead: "
                f"'fairqueue dead show {message_id}'"
            )
        now = installation.now()
        place = _place(installation, queue, found)
        reason = _reason(installation, queue, found, now)
    payload = _payload(queue, found)
    rows = [
        ("id", str(found.message_id)),
        ("queue", queue.name),
        ("channel", found.channel),
        ("kind", found.kind),
        ("key", found.key),
        ("state", found.state(now)),
        ("waits for", reason),
        ("place in its channel", f"beyond {_PLACES:,}" if place == 0 else place and f"{place:,}"),
        ("enqueued (UTC)", found.enqueued_at),
        ("due (UTC)", found.due_at),
        ("attempts", f"{found.attempts} of {found.max_attempts}, handed out {found.deliveries} times"),
        ("consumer", found.consumer),
        ("lease ends (UTC)", found.expires_at),
        ("headers", found.headers),
        ("payload", payload),
        ("error", found.error),
    ]
    document = _document(found, now) | {"waits_for": reason, "place": place or None, "payload": payload}
    return Result({"queue": queue.name} | document, (key_values([row for row in rows if row[1] is not None]),))


def _document(one: MessageDetails, now: datetime) -> dict[str, Any]:
    return {
        "message_id": one.message_id,
        "channel": one.channel,
        "kind": one.kind,
        "key": one.key,
        "state": one.state(now),
        "enqueued_at": one.enqueued_at,
        "due_at": one.due_at,
        "attempts": one.attempts,
        "max_attempts": one.max_attempts,
        "deliveries": one.deliveries,
        "cancelled": one.cancelled,
        "consumer": one.consumer,
        "expires_at": one.expires_at,
        "content_size": one.content_size,
        "error": one.error,
        "unreadable": one.unreadable,
    }


def _place(installation: Installation, queue: Queue, message: MessageDetails) -> int | None:
    """The place of a message among those of its channel that nobody holds, from 1; 0: beyond those that are counted."""
    if message.consumer is not None:
        return None
    ahead = queue.messages(installation.engine, channel=message.channel, limit=_PLACES)
    waiting = [one.message_id for one in ahead if one.consumer is None]
    return waiting.index(message.message_id) + 1 if message.message_id in waiting else 0


def _reason(installation: Installation, queue: Queue, message: MessageDetails, now: datetime) -> str | None:
    """Why a message waits, in words; None: a consumer has it."""
    state = message.state(now)
    if state == "leased":
        return None
    if state == "scheduled":
        return "its time"
    stats = queue.stats(installation.engine)
    tenants = tenants_of(stats, queue.contention(installation.engine, limit=_PLACES), now)
    found = next((one.reason for one in tenants if one.channel == message.channel), None)
    # A channel that is not among those that wait longest waits for these.
    return str(found or Reason.TURN)


def _payload(queue: Queue, message: MessageDetails) -> str | None:
    if message.unreadable is not None:
        return None
    try:
        return json.dumps(queue.codec.decode(message.content), ensure_ascii=False, default=repr)
    except PayloadError as error:
        return f"{message.content!r:.200} ({error})"
