"""``messages``: list, show, cancel, move and retry messages."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.audits import AUDITS, audit_parts
from sqlalchemy_fairqueue.cli.errors import ExitStatus, not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, acting, in_queue, open_queue
from sqlalchemy_fairqueue.cli.options import AnyIds, By, Ids, Options, Spec
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.stats import reason_text, takers_text, wait_document
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, bold, key_values, number_column, text_table
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.configuration import queue_settings
from sqlalchemy_fairqueue.database.messages import read_results
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.figures.queues import given_back
from sqlalchemy_fairqueue.formats import end_words, format_duration, format_value, plural
from sqlalchemy_fairqueue.texts import clean, exception_line
from sqlalchemy_fairqueue.values.reports import (
    AttemptDetails,
    AttemptOutcome,
    AttemptPage,
    MessageDetails,
    MessagePage,
    Reason,
    Wait,
)

_AUDITS = 20
# The audit of a pause is written in its transaction, so not much later.
_AT_ONCE = timedelta(minutes=1)
_MOST_AHEAD = 1000
"""The most messages that a look-up counts ahead of a message."""


class State(StrEnum):
    """The states of messages."""

    LEASED = "leased"
    READY = "ready"
    HELD = "held"
    SCHEDULED = "scheduled"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


_IN_HISTORY: dict[State | None, AttemptOutcome] = {State.COMPLETED: "completed", State.CANCELLED: "cancelled"}
"""The states of messages that have ended, each with the outcome of the last attempt; only a history has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """Names messages by channel and keys, instead of ids.

    Attributes:
        channel: The channel of the message. Give it with --key, --ordering-key or both, but not with an ID.
        key: The key of the message.
        ordering_key: The ordering key of the message. If --key is given too, the message must have both.
    """

    channel: str | None = None
    key: Annotated[str | None, Spec(metavar="KEY")] = None
    ordering_key: Annotated[str | None, Spec(metavar="KEY")] = None


def _table(now: datetime) -> Table:
    return Table(
        number_column("id", "message_id", shown=str),
        Column("state", get=lambda one: one.state(now)),
        Column("channel"),
        *(Column(name, blank=BLANK) for name in ("kind", "key", "ordering key")),
        number_column("attempts", shown=str),
        number_column("due (UTC)", "due_at"),
        Column("consumer", blank=BLANK),
        Column("error", shown=exception_line, blank=BLANK),
        *(
            Column("", key)
            for key in ("behind", "enqueued_at", "max_attempts", "deliveries", "cancelled", "cancelled_at",
                        "expires_at", "content_size", "unreadable")
        ),
    )  # fmt: skip


_ENDED_MESSAGES = Table(
    number_column("id", "message_id", shown=str),
    Column("state", get=lambda one: one.outcome),
    *(Column(name) for name in ("channel", "kind")),
    number_column("attempts", get=lambda one: one.attempt, shown=str),
    number_column("enqueued (UTC)", "enqueued_at"),
    number_column("ended (UTC)", "finished_at"),
    number_column("took", None, get=lambda one: one.finished_at - one.started_at),
    Column("consumer", blank=BLANK),
    *(Column("", key) for key in ("ready_at", "started_at", "error")),
)

_ATTEMPTS = Table(
    number_column("attempt"),
    Column("outcome"),
    number_column("started (UTC)", get=lambda one: one.started_at),
    number_column("took", get=lambda one: one.finished_at - one.started_at),
    Column("consumer", blank=BLANK),
    Column("error", shown=exception_line, blank=BLANK),
)


def list_messages(
    options: Options,
    channel: Annotated[str | None, Spec(metavar="[CHANNEL]")] = None,
    *,
    state: Annotated[State | None, Spec(metavar="STATE")] = None,
    kind: str | None = None,
    key: Annotated[str | None, Spec(metavar="KEY")] = None,
    limit: Annotated[int, Spec(min=1, max=10_000)] = 100,
    after: Annotated[str | None, Spec(metavar="NEXT")] = None,
) -> Result:
    """List messages that have not ended, page by page. With --state completed or cancelled, list ended messages.

    In a channel, messages that consumers hold come first, then the others in the order of delivery. Messages of the
    whole queue are sorted by their ids. For each page, at most 2,000 messages are read, even if --limit is higher. So a
    page may have fewer messages than --limit, although others follow.

    Ended messages are listed if the queue records its history, the latest end first. A message that was cancelled while
    undelivered is left out. For each page of ended messages, at most 10,000 attempts of all queues are read.

    Options:
        channel: Default: the whole queue.
        state: Only leased, ready, held or scheduled messages; or completed or cancelled ones.
        kind: Only messages of this kind.
        key: Only the message of the channel with this key.
        limit: The most messages on the page.
        after: The value that the page before ends with, to show the next page.
    """
    ended = _IN_HISTORY.get(state)
    if ended is not None and key is not None:
        raise usage_error(f"--state {ended} and --key are given; a message has no key when it has ended: leave one out")
    found: MessagePage | AttemptPage
    with open_queue(options) as (installation, queue):
        now = installation.now()
        which: Any = {"channel": channel, "kind": kind, "limit": limit, "after": after}
        if ended is not None:
            found = queue.admin.recent_attempts(installation.engine, outcome=ended, **which)
        else:
            wanted: Any = None if state is None else state.value
            found = queue.messages(installation.engine, state=wanted, key=key, **which)
    whose = f"queue {queue.name!r}" if channel is None else f"channel {channel!r} of queue {queue.name!r}"
    such = "" if state is None and kind is None and key is None else "such "
    nothing, more = f"{whose} has no {such}messages", None
    if ended is not None:
        nothing += f" in its history: {_recording(queue)} records one"
    if found.next is not None:
        nothing = f"no {such}messages of {whose} among those that were read"
        more = f"there may be more: --after={found.next}"
    table = _table(now) if ended is None else _ENDED_MESSAGES
    document = {"queue": queue.name, "channel": channel, "messages": table.documents(found), "next": found.next}
    return Result(document, table.listing(list(found), nothing, more, without=() if channel is None else {"channel"}))


def show_message(
    options: Options, message_id: Annotated[int | None, Spec(metavar="[ID]", min=1)] = None, *, name: Name
) -> Result:
    """Show a message: its state, why it waits, its payload, its attempts, the last traceback, or how it ended.

    Attempts are shown if the queue records its history. With --ordering-key, show the key's leased message, or else its
    next one. Payload and result are decoded as JSON, or by the codec of the application's queue if --app names one.
    """
    with open_queue(options) as (installation, queue):
        found = queue.message(installation.engine, message_id, **asdict(name))
        if found is None and message_id is None:
            raise not_found_error(f"queue {queue.name!r} has no message of that name that is not settled")
        if found is None:
            return _ended(installation, queue, message_id)
        now = installation.now()
        audits = queue.admin.audits(installation.engine, message_id=found.message_id, limit=_AUDITS)
        paused_at, paused_by = _pause(installation, queue, found)
    payload = None if found.unreadable is not None else _decoded(queue, found.content)
    wait, handed_out = found.wait, plural(found.deliveries, "time")
    rows = [
        ("id", str(found.message_id)), ("queue", queue.name), ("channel", found.channel), ("kind", found.kind),
        ("key", found.key), ("ordering key", found.ordering_key), ("state", found.state(now)),
        ("waits for", wait and f"{reason_text(wait, now)}{_used(wait)}"),
        ("paused", paused_at and f"for {format_duration(now - paused_at)}{f', by {paused_by}' if paused_by else ''}"),
        ("given back", given_back(found, now)),
        ("which has", wait and takers_text(wait, now, found.channel)),
        ("messages ahead", None if found.consumer is not None else _ahead(found)),
        ("enqueued (UTC)", found.enqueued_at), ("due (UTC)", found.due_at),
        ("attempts", f"{found.attempts} of at most {found.max_attempts}, handed out {handed_out}"),
        ("consumer", found.consumer), ("lease ends (UTC)", _lease_end(found, now)),
        ("cancelled", _cancelled(queue, found, now)), ("headers", found.headers), ("payload", payload),
    ]  # fmt: skip
    document = {"queue": queue.name} | _table(now).document(found) | wait_document(wait)
    document |= {"messages_ahead": found.messages_ahead, "payload": payload}
    document |= {"paused_at": paused_at, "paused_by": paused_by}
    shown = (*attempts_parts(found.history), *audit_parts(audits), *error_parts(found.error))
    return Result(
        document | {"history": attempts_document(found.history), "audit": AUDITS.documents(audits)},
        (key_values(rows, blank=False), *shown),
    )


_ENDED = {"completed": "completed", "unkept": "completed", "cancelled": "cancelled"}
_RESULT = Table(
    Column("id", "message_id", shown=str),
    *(Column(name) for name in ("queue", "channel", "kind", "state")),
    Column("enqueued (UTC)", "enqueued_at"),
    Column("ended (UTC)", "finished_at"),
    *(Column(name) for name in ("result", "no result")),
    Column("kept until (UTC)", "expires_at"),
)


def _ended(installation: Installation, queue: Queue, message_id: int | None) -> Result:
    wanted = message_id or 0
    with installation.engine.connect() as connection:
        [kept] = read_results(connection, Target(installation.schema, queue.name), [wanted])
        attempts = queue.admin.attempts(connection, wanted)
        audits = queue.admin.audits(connection, message_id=wanted, limit=_AUDITS) if wanted else []
        settings = queue_settings(connection, installation.schema, queue.name).get(queue.name)
        records_history = settings is not None and settings.history
    if kept.state == "failed":
        raise not_found_error(
            f"message {wanted} of queue {queue.name!r} is dead: 'fairqueue dead show {wanted} {in_queue(queue)}'"
        )
    if kept.state not in _ENDED and not attempts:
        message = f"queue {queue.name!r} has no message {wanted}: it is done, withdrawn, purged or of another queue"
        if not records_history:
            message += f"; {_recording(queue)} records how messages end"
        raise not_found_error(message)
    last = attempts[-1] if attempts else None
    of_last = asdict(last) if last else dict.fromkeys(("channel", "kind", "enqueued_at", "finished_at"))
    state = _ENDED.get(kept.state) or (last.outcome if last is not None and last.outcome in _ENDED else "gone")
    result = None
    if kept.state == "completed":
        result = "null" if kept.content is None else _decoded(queue, kept.content)
    document = {
        "queue": queue.name, "message_id": message_id, "channel": kept.channel or of_last["channel"],
        "kind": kept.kind or of_last["kind"], "state": state, "enqueued_at": of_last["enqueued_at"],
        "finished_at": kept.finished_at or of_last["finished_at"], "result": result, "no_result": kept.reason,
        "expires_at": kept.expires_at,
    }  # fmt: skip
    words = end_words(state, kept.finished_at, attempts)
    shown = (*attempts_parts(attempts, "attempts"), *audit_parts(audits), *error_parts(last.error if last else None))
    return Result(
        document | {"history": attempts_document(attempts), "audit": AUDITS.documents(audits)},
        (words, _RESULT.details(document), *shown),
    )


_MOVED = {
    "moved": "moved",
    "unchanged": "is in that channel already",
    "leased": "stays: a consumer has it",
    "duplicate": "stays: another message of that channel holds its key",
    "missing": "not there: done, dead, withdrawn, or of another queue",
}
_RETRIED = {
    "due": "due at once",
    "redriven": "was dead, and is back in its channel",
    "unchanged": "was due already: 'fairqueue messages show ID' says what it waits for",
    "leased": "a consumer has it",
    "duplicate": "stays dead: another message of its channel holds its key",
    "missing": "not there: done, withdrawn, or of another queue",
}
_CANCELLED = {
    "cancelled": "withdrawn",
    "leased": "a consumer has it: its worker is told, and it is not delivered again",
    "missing": "not there: done, dead, withdrawn before, or of another queue",
}


def move_messages(options: Options, ids: Ids, *, to: Annotated[str, Spec(metavar="CHANNEL")], by: By = None) -> Result:
    """Move undelivered messages to another channel, where their times and priorities decide their places.

    Each message is moved in its own transaction. A message stays where it is if a consumer holds it, or if another
    message of the new channel holds its key. The exit status is 1 if one stays for such a reason, or does not exist.

    Options:
        to: The channel to put the messages into.
    """
    with open_queue(options) as (installation, queue):
        outcomes = {}
        for message_id in ids:
            with acting(installation, queue, "move", by, channel=to, message_ids=[message_id]) as connection:
                outcomes[message_id] = queue.admin.move(connection, message_id, to)
    failed = {"leased", "duplicate", "missing"}
    return _outcomes({"queue": queue.name, "channel": to}, outcomes.items(), _MOVED, failed)


def retry_messages(options: Options, ids: AnyIds = None, *, name: Name, by: By = None) -> Result:
    """Let messages be tried at once: those that wait for their time or their next attempt, and dead letters.

    Limits, rates and pauses still hold. With --ordering-key, the next message of the key is tried, unless a consumer
    holds a message of the key. The exit status is 1 if a message does not exist, or stays dead.
    """
    with open_queue(options) as (installation, queue):
        engine = installation.engine
        if not ids or name != Name():
            # message() refuses an id beside a key, as it does for ``messages show``.
            found = queue.message(engine, ids[0] if ids else None, **asdict(name))
            ids = [] if found is None else [found.message_id]
        outcomes: list[tuple[int | None, str]] = []
        for one in ids:
            with acting(installation, queue, "retry", by, message_ids=[one]) as connection:
                outcomes.append((one, queue.admin.retry_now(connection, one)))
    return _outcomes({"queue": queue.name}, outcomes or [(None, "missing")], _RETRIED, {"missing", "duplicate"})


def cancel(options: Options, ids: AnyIds = None, *, name: Name, by: By = None) -> Result:
    """Withdraw messages that are not delivered yet; the workers of delivered messages are told to stop handling them.

    With --ordering-key, withdraw all messages that have it. The exit status is 1 if a message does not exist.
    """
    outcomes: list[tuple[int | None, str]] = []
    cancelled: list[int] = []
    with (
        open_queue(options) as (installation, queue),
        acting(installation, queue, "cancel", by, channel=name.channel, message_ids=cancelled) as connection,
    ):
        wanted: list[int | None] = [*ids] if ids else [None]
        for one in wanted:
            receipt = queue.cancel(connection, one, **asdict(name))
            outcomes += (receipt.outcomes or {}).items() or [(receipt.message_id, "missing")]
        cancelled += [message_id for message_id, outcome in outcomes if message_id and outcome != "missing"]
    return _outcomes({"queue": queue.name}, outcomes, _CANCELLED, {"missing"})


def _outcomes(
    document: dict[str, Any], outcomes: Iterable[tuple[int | None, str]], words: dict[str, str], failed: set[str]
) -> Result:
    found = list(outcomes)
    rows = [(None if message_id is None else str(message_id), words[outcome]) for message_id, outcome in found]
    return Result(
        document | {"messages": [{"message_id": message_id, "outcome": outcome} for message_id, outcome in found]},
        (text_table((number_column("id"), Column("outcome")), rows),),
        ExitStatus.FOUND if failed & {outcome for _, outcome in found} else ExitStatus.OK,
    )


def error_parts(error: str | None) -> tuple[Any, ...]:
    return () if error is None else (bold("error"), "\n".join(clean(line.expandtabs()) for line in error.splitlines()))


def attempts_parts(attempts: Sequence[AttemptDetails], heading: str = "attempts before") -> tuple[Any, ...]:
    return (bold(heading), _ATTEMPTS.screen(attempts)) if attempts else ()


def attempts_document(attempts: Sequence[AttemptDetails]) -> list[dict[str, Any]]:
    return [asdict(one) for one in attempts]


def _used(wait: Wait) -> str:
    return "" if wait.used is None else f": {wait.used:,} of {wait.most:,} out"


def _pause(installation: Installation, queue: Queue, message: MessageDetails) -> tuple[datetime | None, str | None]:
    """Return when the pause that blocks *message* began and who paused if known; (None, None) if no pause blocks it."""
    match message.wait.reason if message.wait else None:
        case Reason.QUEUE_PAUSED:
            channel, at = None, queue.stats(installation.engine).paused_at
        case Reason.PAUSED:
            channel = message.channel
            at = next((one.paused_at for one in queue.channels(installation.engine, channel)), None)
        case _:
            return None, None
    if at is None:
        return None, None
    # A pause and its audit are written in one transaction, so the first audit since then tells who paused. Later audits
    # are of operators who paused again, which changed nothing.
    done = queue.admin.audits(installation.engine, channel=channel, before=at + _AT_ONCE)
    by = [one.who for one in done if one.what == "pause" and one.channel == channel and one.at >= at]
    return at, by[-1] if by else None


def _lease_end(message: MessageDetails, now: datetime) -> str | None:
    if message.expires_at is None:
        return None
    over = ": it is over, and the next dequeue of any worker takes the message back" if message.expires_at < now else ""
    return f"{format_value(message.expires_at)}{over}"


def _cancelled(queue: Queue, message: MessageDetails, now: datetime) -> str | None:
    if not message.cancelled or message.cancelled_at is None:
        return None
    return (
        f"{format_duration(now - message.cancelled_at)} ago, its handler still runs: it goes when the handler ends, or "
        f"'fairqueue workers stop {shlex.quote(str(message.consumer))} {in_queue(queue)}' stops that worker"
    )


def _recording(queue: Queue) -> str:
    return f"'fairqueue configure queue {shlex.quote(queue.name)} --history'"


def _ahead(message: MessageDetails) -> str:
    return f"{_MOST_AHEAD:,} or more" if message.messages_ahead is None else f"{message.messages_ahead:,}"


def _decoded(queue: Queue, content: bytes) -> str:
    try:
        return json.dumps(queue.codec.decode(content), ensure_ascii=False, default=repr)
    except PayloadError as error:
        return f"{content!r:.200} ({error})"
