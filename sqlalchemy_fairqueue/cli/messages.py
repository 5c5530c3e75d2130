"""``messages``: messages that are not settled, listed, shown with the reason of their wait, moved, and retried."""

# Annotations are read when the program starts, so that they must not be postponed.
import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.attempts import attempts_document, attempts_parts, error_parts
from sqlalchemy_fairqueue.cli.errors import ExitStatus, not_found_error
from sqlalchemy_fairqueue.cli.installation import Installation, open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, key_values, number_column, text_table
from sqlalchemy_fairqueue.cli.waits import wait_cells, wait_document
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.messages import read_results
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.texts import last_line
from sqlalchemy_fairqueue.values.reports import MessageDetails

_MOST_AHEAD = 1000
"""Messages ahead of one that a look-up counts."""

_COLUMNS = (
    number_column("id"),
    Column("state"),
    Column("kind", blank=BLANK),
    Column("key", blank=BLANK),
    Column("ordering key", blank=BLANK),
    number_column("attempts"),
    number_column("due (UTC)"),
    Column("consumer", blank=BLANK),
    Column("error", blank=BLANK),
)


class State(StrEnum):
    """The states of messages that are not settled."""

    LEASED = "leased"
    READY = "ready"
    HELD = "held"
    SCHEDULED = "scheduled"


def list_messages(
    options: Options,
    *,
    channel: Annotated[
        str | None, typer.Argument(metavar="[CHANNEL]", help="Default: the whole queue.", show_default=False)
    ] = None,
    state: Annotated[
        State | None, typer.Option("--state", metavar="STATE", help="Only leased, ready, held or scheduled ones.")
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="NAME", help="Only of this kind.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Only the one with this key of the channel.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="At most so many.")] = 100,
    after: Annotated[
        str | None, typer.Option("--after", metavar="NEXT", help="The page after this one: what the last one said.")
    ] = None,
) -> Result:
    """List messages that are not settled, page by page.

    Those of a channel: first those that consumers hold, then the others in the order of delivery. Those of the whole
    queue: by their ids. By kind, and by state without a channel, a page reads 2,000 messages at most, so that it may be
    short and not the last one.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue()
        now = installation.now()
        found = queue.messages(
            installation.engine,
            channel=channel,
            state=None if state is None else state.value,
            kind=kind,
            key=key,
            limit=limit,
            after=after,
        )
    columns = _COLUMNS if channel is not None else (*_COLUMNS[:2], Column("channel"), *_COLUMNS[2:])
    rows = []
    for one in found:
        where = () if channel is not None else (one.channel,)
        attempts = str(one.attempts)
        rows.append(
            (str(one.message_id), one.state(now), *where, one.kind, one.key, one.ordering_key, attempts, one.due_at,
             one.consumer, last_line(one.error))
        )  # fmt: skip
    whose = f"queue {queue.name!r}" if channel is None else f"channel {channel!r} of queue {queue.name!r}"
    such = "" if state is None and kind is None and key is None else "such "
    shown: list[Any] = [text_table(columns, rows)] if rows else [Text(f"{whose} has no {such}messages")]
    if found.next is not None:
        shown = shown if rows else [Text(f"no {such}messages of {whose} among those that were read")]
        shown.append(Text(f"there may be more: --after={found.next}"))
    return Result(
        {
            "queue": queue.name,
            "channel": channel,
            "messages": [_document(one, now) for one in found],
            "next": found.next,
        },
        tuple(shown),
    )


def show_message(options: Options, *, message_id: Annotated[int, typer.Argument(metavar="ID", min=1)]) -> Result:
    """Show a message: its state, why it waits, its payload, its attempts, the last traceback; once it ended its result.

    Attempts are shown where the queue records its history.

    Payload and result are decoded as JSON, or by the codec of the application's queue if --app names one.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue()
        found = queue.message(installation.engine, message_id)
        if found is None:
            return _result(installation, queue, message_id)
        now = installation.now()
    payload = _payload(queue, found)
    waits_for, which_has = wait_cells(found.wait)
    rows = [
        ("id", str(found.message_id)),
        ("queue", queue.name),
        ("channel", found.channel),
        ("kind", found.kind),
        ("key", found.key),
        ("ordering key", found.ordering_key),
        ("state", found.state(now)),
        ("waits for", waits_for),
        ("which has", which_has),
        ("messages ahead", None if found.consumer is not None else _ahead(found)),
        ("enqueued (UTC)", found.enqueued_at),
        ("due (UTC)", found.due_at),
        ("attempts", f"{found.attempts} of at most {found.max_attempts}, handed out {found.deliveries} times"),
        ("consumer", found.consumer),
        ("lease ends (UTC)", found.expires_at),
        ("headers", found.headers),
        ("payload", payload),
    ]
    ahead = {"messages_ahead": found.messages_ahead, "payload": payload}
    document = _document(found, now) | wait_document(found.wait) | ahead
    return Result(
        {"queue": queue.name} | document | {"history": attempts_document(found.history)},
        (
            key_values([row for row in rows if row[1] is not None]),
            *attempts_parts(found.history),
            *error_parts(found.error),
        ),
    )


def _result(installation: Installation, queue: Queue, message_id: int) -> Result:
    """The result of a message that has ended."""
    with installation.engine.connect() as connection:
        [kept] = read_results(connection, Target(installation.schema, queue.name), [message_id])
    if kept.state not in _ENDED:
        raise not_found_error(
            f"queue {queue.name!r} has no message {message_id}: it is done, withdrawn, of another queue, or dead: "
            f"'fairqueue dead show {message_id}'"
        )
    result = None
    if kept.state == "completed":
        result = "null" if kept.content is None else _decoded(queue, kept.content)
    rows = [
        ("id", str(message_id)),
        ("queue", queue.name),
        ("channel", kept.channel),
        ("kind", kept.kind),
        ("state", _ENDED[kept.state]),
        ("ended (UTC)", kept.finished_at),
        ("result", result),
        ("no result", kept.reason),
        ("kept until (UTC)", kept.expires_at),
    ]
    document = {
        "queue": queue.name,
        "message_id": message_id,
        "channel": kept.channel,
        "kind": kept.kind,
        "state": _ENDED[kept.state],
        "finished_at": kept.finished_at,
        "result": result,
        "no_result": kept.reason,
        "expires_at": kept.expires_at,
    }
    return Result(document, (key_values([row for row in rows if row[1] is not None]),))


_ENDED = {"completed": "completed", "unkept": "completed", "cancelled": "cancelled"}


_OUTCOMES = {
    "moved": "moved",
    "unchanged": "is in that channel already",
    "leased": "stays: a consumer has it",
    "duplicate": "stays: another message of that channel holds its key",
    "missing": "not there: done, dead, withdrawn, or of another queue",
}


def move_messages(
    options: Options,
    *,
    ids: Annotated[list[int], typer.Argument(metavar="ID...", min=1, show_default=False)],
    channel: Annotated[str, typer.Option("--to", metavar="CHANNEL", help="The channel to put them into.")],
) -> Result:
    """Put messages that wait into another channel, where they stand by their times and priorities.

    Each is moved in a transaction of its own. The exit status is 1 when one is not in that channel afterwards.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue()
        outcomes = {message_id: queue.admin.move(installation.engine, message_id, channel) for message_id in ids}
    rows = [(str(message_id), _OUTCOMES[outcome]) for message_id, outcome in outcomes.items()]
    return Result(
        {
            "queue": queue.name,
            "channel": channel,
            "messages": [{"message_id": message_id, "outcome": outcome} for message_id, outcome in outcomes.items()],
        },
        (text_table((number_column("id"), Column("outcome")), rows),),
        ExitStatus.OK if set(outcomes.values()) <= {"moved", "unchanged"} else ExitStatus.FOUND,
    )


_RETRIED = {
    "due": "due at once",
    "redriven": "was dead, and is back in its channel",
    "unchanged": "was due already: 'fairqueue messages show ID' says what it waits for",
    "leased": "a consumer has it",
    "duplicate": "stays dead: another message of its channel holds its key",
    "missing": "not there: done, withdrawn, or of another queue",
}


def retry_messages(
    options: Options,
    *,
    ids: Annotated[list[int], typer.Argument(metavar="ID...", min=1, show_default=False)],
) -> Result:
    """Let messages be tried at once: those that wait for their time or their next attempt, and dead letters.

    Limits, rates and pauses hold as ever. The exit status is 1 when one is not there, or stays dead.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue()
        outcomes = {message_id: queue.admin.retry_now(installation.engine, message_id) for message_id in ids}
    rows = [(str(message_id), _RETRIED[outcome]) for message_id, outcome in outcomes.items()]
    return Result(
        {
            "queue": queue.name,
            "messages": [{"message_id": message_id, "outcome": outcome} for message_id, outcome in outcomes.items()],
        },
        (text_table((number_column("id"), Column("outcome")), rows),),
        ExitStatus.FOUND if {"missing", "duplicate"} & set(outcomes.values()) else ExitStatus.OK,
    )


def _document(one: MessageDetails, now: datetime) -> dict[str, Any]:
    return {
        "message_id": one.message_id,
        "channel": one.channel,
        "kind": one.kind,
        "key": one.key,
        "ordering_key": one.ordering_key,
        "state": one.state(now),
        "behind": one.behind,
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


def _ahead(message: MessageDetails) -> str:
    return f"{_MOST_AHEAD:,} or more" if message.messages_ahead is None else f"{message.messages_ahead:,}"


def _payload(queue: Queue, message: MessageDetails) -> str | None:
    if message.unreadable is not None:
        return None
    return _decoded(queue, message.content)


def _decoded(queue: Queue, content: bytes) -> str:
    try:
        return json.dumps(queue.codec.decode(content), ensure_ascii=False, default=repr)
    except PayloadError as error:
        return f"{content!r:.200} ({error})"
