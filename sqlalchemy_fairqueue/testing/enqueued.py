"""Asserts what a transaction has enqueued, before its COMMIT and in tests that roll back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import case, select

from sqlalchemy_fairqueue import models
from sqlalchemy_fairqueue.database.engines import on
from sqlalchemy_fairqueue.database.installation import check_installed
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue import Job, Queue
from sqlalchemy_fairqueue.queue.base import on_session
from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage
from sqlalchemy_fairqueue.unit_of_work.sessions import connection_of, recorded, session_of
from sqlalchemy_fairqueue.values.policies import UNSET, Unset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.base import PlainSession

    AnyJob = Job[..., ..., Any]

_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A message that was enqueued and is not delivered yet.

    Attributes:
        payload: As the handler will get it, encoded and decoded by the queue's codec.
        max_attempts: The message's own, or the queue's.
        at: When a scheduled message is due; for a message that is not sent yet, what ``enqueue(at=)`` got.
        message_id: None if the message is recorded on the session and not sent yet.

    Example:
        >>> with rolled_back(engine) as session:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload={"file": "a.pdf"}, kind="parse")
        ...     [message] = all_enqueued(session, queue)
        >>> message.kind, message.payload, message.message_id
        ('parse', {'file': 'a.pdf'}, None)
    """

    channel: str
    kind: str
    payload: Any
    key: str | None
    headers: Mapping[str, Any] | None
    max_attempts: int
    at: datetime | None
    message_id: int | None
    unique_for: timedelta | None = None
    ordering_key: str | None = None


_FIELDS = tuple(field.name for field in fields(Enqueued) if field.name != "message_id")


@on_session
def all_enqueued(session: PlainSession, queue: Queue | AnyJob, /, **wanted: Any) -> list[Enqueued]:
    """Return the undelivered messages of a queue that the session sees: committed, sent, or recorded on the session.

    Recorded messages come last, the others by id. Nothing is sent or flushed. For an async session, await the call.

    Args:
        queue: A queue; or a job, to get only its messages.
        wanted: What the messages must have: channel, kind, key, payload, headers, max_attempts, at, unique_for,
            ordering_key. For a job, also arguments of the job; if the job has an argument ``key``, for example,
            ``key=`` means this argument. A mapping matches every mapping that contains its items. A payload goes
            through the codec first.

    Raises:
        InvalidArgument: *session* is no session, or *wanted* has an unknown name.

    Example:
        >>> with rolled_back(engine) as session:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=1)
        ...     print(len(all_enqueued(session, queue)))
        1
    """
    return on(session, lambda found: _all_enqueued(found, queue, wanted))


def _all_enqueued(where: object, queue: Queue | AnyJob, wanted: dict[str, Any]) -> list[Enqueued]:
    session = sync_session_of(where)
    arguments = queue.schema.signature.parameters if isinstance(queue, Job) else ()
    queue, wanted = _resolved(queue, wanted)
    if unknown := wanted.keys() - set(_FIELDS):
        known = ", ".join((*arguments, *_FIELDS))
        raise InvalidArgument(f"messages have no {min(unknown)!r:.80}; ask for {known}")
    if "payload" in wanted:
        wanted = wanted | {"payload": queue.codec.decode(queue.codec.encode(wanted["payload"]))}
    messages = [*_sent(session, queue), *_recorded(session, queue)]
    return [one for one in messages if all(_matches(value, getattr(one, name)) for name, value in wanted.items())]


def sync_session_of(session: object) -> Session:
    if (found := session_of(session)) is None:
        raise InvalidArgument(f"session is {session!r:.80}; give the session in which the code under test works")
    return found


@on_session
def assert_enqueued(
    session: PlainSession, queue: Queue | AnyJob, /, *, count: int | Unset | None = UNSET, **wanted: Any
) -> list[Enqueued]:
    """Fail unless messages with *wanted* were enqueued, and return these messages.

    At least one message is expected or, if *count* is a number, exactly *count* messages. The AssertionError lists the
    messages with *wanted* or, if there are none, all enqueued messages. For other arguments and errors see
    :func:`all_enqueued`. If a job has an argument ``count``, *count* means this argument.

    Example:
        >>> with rolled_back(engine) as session:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload={"file": "a.pdf"})
        ...     [message] = assert_enqueued(session, queue, channel="customer-7", payload={"file": "a.pdf"})
    """
    expected = None if isinstance(count, Unset) else count
    if count is not UNSET and isinstance(queue, Job) and "count" in queue.schema.signature.parameters:
        wanted["count"], expected = count, None
    return on(session, lambda found: _asserted(found, queue, expected, wanted))


@on_session
def refute_enqueued(session: PlainSession, queue: Queue | AnyJob, /, **wanted: Any) -> None:
    """Fail if a message with *wanted* was enqueued, and list such messages. For the rest see :func:`all_enqueued`.

    Example:
        >>> with rolled_back(engine) as session:
        ...     refute_enqueued(session, queue, channel="customer-7")
    """

    def work(found: object) -> None:
        _asserted(found, queue, 0, wanted)

    return on(session, work)


def _asserted(session: object, queue: Queue | AnyJob, expected: int | None, wanted: dict[str, Any]) -> list[Enqueued]:
    queue, wanted = _resolved(queue, wanted)
    found = _all_enqueued(session, queue, wanted)
    if len(found) == expected or (expected is None and found):
        return found
    fields = ", ".join(f"{name}={value!r:.200}" for name, value in wanted.items())
    messages = f"{len(found)} messages" if len(found) > 1 else f"{len(found) or 'no'} message"
    number = f"{messages} of queue {queue.name!r}{f' with {fields}' if fields else ''}"
    enqueued = f"{'were' if len(found) > 1 else 'was'} enqueued, {'one or more' if expected is None else expected}"
    raise AssertionError(f"{number} {enqueued} expected{_listed(found or _all_enqueued(session, queue, {}))}")


def _resolved(queue: Queue | AnyJob, wanted: dict[str, Any]) -> tuple[Queue, dict[str, Any]]:
    if not isinstance(queue, Job):
        return queue, wanted
    names = queue.schema.signature.parameters
    arguments = {name: queue.schema.plain(name, value) for name, value in wanted.items() if name in names}
    fields = {name: value for name, value in wanted.items() if name not in names}
    if arguments:
        given, payload = fields.get("payload"), queue.schema.joined(arguments)
        fields["payload"] = {**given, **payload} if isinstance(given, Mapping) else payload
    return cast("Queue", queue.queue), {"kind": queue.kind, **fields}


def _recorded(session: Session, queue: Queue) -> list[Enqueued]:
    of_message = ("channel", "kind", "key", "at", "unique_for", "ordering_key")
    return [
        Enqueued(
            **{name: getattr(one.message, name) for name in of_message},
            payload=queue.codec.decode(one.content),
            headers=None if one.headers is None else json.loads(one.headers),
            max_attempts=one.max_attempts,
            message_id=None,
        )
        for one in recorded(session)
        if isinstance(one, EnqueueMessage) and (one.target.schema, one.target.queue) == (queue.schema, queue.name)
    ]


def _sent(session: Session, queue: Queue) -> list[Enqueued]:
    target = queue._target  # noqa: SLF001 - it names the database of the queue among several
    connection = connection_of(session, target)
    check_installed(connection, target.schema)
    message, channel, period = models.Message, models.Channel, models.KeyPeriod
    query = (
        select(
            channel.name.label("channel"), message.kind, message.content.label("payload"), message.headers, message.key,
            message.max_attempts, case((message.due_at > message.enqueued_at, message.due_at)).label("at"),
            message.id.label("message_id"), period.unique_for, message.ordering_key,
        )
        .join(channel, channel.id == message.channel_id)
        .outerjoin(period, period.message_id == message.id)
        .where(channel.queue == queue.name, message.lease_id.is_(None))
        .order_by(message.id)
    )  # fmt: skip
    schemas = {} if target.schema is None else {"schema_translate_map": {None: target.schema}}
    rows = [row._asdict() for row in connection.execute(query, execution_options=schemas)]
    return [Enqueued(**row | {"payload": queue.codec.decode(row["payload"])}) for row in rows]


def _matches(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(name in found and _matches(value, found[name]) for name, value in wanted.items())
    return bool(wanted == found)


def _listed(found: Sequence[Enqueued]) -> str:
    lines = ["; enqueued are:" if found else "; nothing is enqueued there"]
    for message in found[:_SHOWN]:
        values = ((name, getattr(message, name)) for name in ("channel", "kind", "payload", "key", "ordering_key"))
        lines.append(", ".join(f"{name} {value!r:.200}" for name, value in values if value is not None))
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    return "\n  ".join(lines)
