"""Calls handlers for a test, with a delivery that the test makes, or with what a session has enqueued."""

from __future__ import annotations

import inspect
import json
import math
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy.util import await_only, greenlet_spawn

from sqlalchemy_fairqueue.codecs import decoded
from sqlalchemy_fairqueue.database.asynchronous import AsyncSession, async_scoped_session
from sqlalchemy_fairqueue.database.deliveries import delivered, take_messages
from sqlalchemy_fairqueue.database.engines import on
from sqlalchemy_fairqueue.database.installation import check_installed
from sqlalchemy_fairqueue.database.messages import fold_groups
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue import Job, Queue
from sqlalchemy_fairqueue.queue.base import on_session
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.queue.contexts import call_of, finished, middleware_for, middleware_of
from sqlalchemy_fairqueue.queue.handlers import follow_dead, handlers_of
from sqlalchemy_fairqueue.queue.results import encoded_result, results_of_batch
from sqlalchemy_fairqueue.testing.enqueued import sync_session_of
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from sqlalchemy_fairqueue.unit_of_work.sessions import connection_of, record, send_recorded
from sqlalchemy_fairqueue.values.messages import (
    AFTER_GROUP_HEADER,
    GROUP_HEADER,
    Delivery,
    Enqueue,
    GroupCounts,
    Lease,
    checked_group_id,
)
from sqlalchemy_fairqueue.values.outcomes import Bury, Outcome, Release, Retry, RetryPolicy
from sqlalchemy_fairqueue.values.policies import UNSET, Unset
from sqlalchemy_fairqueue.worker import Context, handling
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, TrackedLease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from uuid import UUID

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.base import AnySession, PlainSession
    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.testing.enqueued import AnyJob
    from sqlalchemy_fairqueue.worker.leases import ServedQueue

_LEASE = timedelta(hours=1)
_RETRY = RetryPolicy()
NO_RESOURCES: Mapping[str, Any] = MappingProxyType({})


def make_delivery(
    queue: Queue,
    payload: Any,
    *,
    channel: str = "test",
    kind: str = "default",
    headers: Mapping[str, Any] | None = None,
    message_id: int = 1,
    attempt: int = 1,
    max_attempts: int | None = None,
    enqueued_at: datetime | None = None,
    ordering_key: str | None = None,
    group: UUID | str | None = None,
    after_group: GroupCounts | None = None,
) -> Delivery:
    """Return a delivery as a worker would pass it to a handler, without a message in the database.

    Its lease ends in an hour; to settle or extend the delivery raises LeaseLost. The payload goes through the codec, so
    that with JSON a tuple becomes a list. Values that ``enqueue`` would refuse raise the same errors.

    Args:
        max_attempts: Default: the queue's.
        enqueued_at: Default: now.
        group: The id of the group for ``context.group``. Members that the handler adds are recorded on its session; the
            COMMIT of that session then raises LeaseLost.
        after_group: The counts for ``context.after_group``.

    Example:
        >>> make_delivery(queue, {"file": "a.pdf"}, kind="parse", attempt=2).attempt
        2
    """
    if group is not None:
        headers = {**(headers or {}), GROUP_HEADER: str(checked_group_id(group))}
    if after_group is not None:
        if not isinstance(after_group, GroupCounts):
            raise InvalidArgument(f"after_group is {after_group!r:.80}; give GroupCounts(id=..., total=..., ...)")
        headers = {**(headers or {}), AFTER_GROUP_HEADER: {**asdict(after_group), "id": str(after_group.id)}}
    message = Enqueue(
        channel=channel, payload=payload, kind=kind, headers=headers, max_attempts=max_attempts,
        ordering_key=ordering_key,
    )  # fmt: skip
    [sent] = queue._enqueues([message], sends=False)  # noqa: SLF001 - it refuses the arguments that enqueue refuses
    now = datetime.now(UTC)
    return Delivery(
        message_id=message_id, queue=queue.name, channel=message.channel, kind=message.kind, content=sent.content,
        headers=None if sent.headers is None else json.loads(sent.headers), attempt=attempt,
        max_attempts=sent.max_attempts, enqueued_at=enqueued_at or now, lease=Lease(1, "test", now + _LEASE),
        deliveries=attempt, row_id="(0,1)", decoded=decoded(queue.codec, sent.content),
        ordering_key=message.ordering_key,
    )  # fmt: skip


def make_context(
    delivery: Delivery,
    *,
    stopping: bool = False,
    cancelled: bool = False,
    lost: bool = False,
    timed_out: bool = False,
    queue: Queue | None = None,
) -> Context:
    """Return the context that a worker would pass to the handler of a delivery.

    ``context.cancelled`` can also be set later. With *queue*, handlers can add group members.

    Example:
        >>> make_context(make_delivery(queue, 1), cancelled=True).cancelled
        True
    """
    served = None if queue is None else SimpleNamespace(queue=queue)
    lease = TrackedLease(delivery.lease.id, math.inf, monotonic)
    held = HeldDelivery(delivery, lease, cast("ServedQueue", served), monotonic())
    held.stopping = stopping
    held.cancelled = cancelled
    held.given_up = lost
    if timed_out:
        held.limit_time(timedelta())
    return Context(held)


@dataclass(frozen=True, slots=True)
class Performed:
    """A delivery that a handler was called with, and what the handler returned.

    Attributes:
        outcome: The Outcome, as :func:`perform` returns it; None: the message is completed.
        result: What a handler of a completed message returned. If the queue keeps results, ``queue.result`` reads it.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> Retry:
        ...     return Retry(error="busy")
        >>> with rolled_back(engine) as session:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=1, kind="call")
        ...     [performed] = drain(session, queue)
        >>> performed.delivery.channel, performed.outcome.error
        ('customer-7', 'busy')
    """

    delivery: Delivery
    outcome: Outcome | None
    result: Any = None


def perform(
    queue: Queue | AnyJob,
    /,
    payload: Any = UNSET,
    *,
    kind: str | Unset = UNSET,
    session: AnySession | None = None,
    context: Context | None = None,
    resources: Mapping[str, Any] = NO_RESOURCES,
    **message: Any,
) -> Outcome | None:
    """Call the handler of a kind as a worker would, with a payload of the test and without a message.

    Args:
        queue: The queue with the handler; or a job, whose arguments are then given by name.
        payload: None by default. It goes through the codec.
        kind: "default" by default. Not for a job.
        session: For a handler that takes one. The call commits nothing, and settles no message.
        context: For a handler that takes one. The handler then gets the delivery of this context, not a delivery made
            of *payload* and *message*. Default: a context in which nothing is cancelled, lost, stopping or timed out.
        resources: What on_start functions would return, by the resource's name. The functions are not called.
        message: Further arguments of :func:`make_delivery`: channel, headers, attempt, group, after_group and others.
            For a job, also the job's arguments. If a job has an argument ``payload``, ``payload=`` means this argument.

    Returns:
        The Outcome that the handler returned, raised, or asked for by ``context.retry``, ``release`` or ``bury``. None:
        a worker would complete the message. An exception that the handler's RetryPolicy names is returned as an Outcome
        too: as Bury for ``bury_on``, as Retry for ``retry_on``.

    Raises:
        InvalidArgument: There is no such handler; it takes a session or a resource that the call does not give; or it
            is async, so that it needs :func:`aperform`.
        TypeError, PayloadError: The arguments do not fit the job.
        Exception: Any other exception of the handler, which a worker would count as a failure.

    Example:
        >>> @queue.handler("add")
        ... def add(delivery: Delivery) -> Bury | None:
        ...     return Bury("too much") if sum(delivery.payload) > 100 else None
        >>> perform(queue, [60, 50], kind="add").reason
        'too much'
    """
    given = {"payload": payload, "kind": kind, "resources": resources, **message}
    return _performed(queue, given, session, context, awaits=False)


async def aperform(
    queue: Queue | AnyJob,
    /,
    payload: Any = UNSET,
    *,
    kind: str | Unset = UNSET,
    session: AnySession | None = None,
    context: Context | None = None,
    resources: Mapping[str, Any] = NO_RESOURCES,
    **message: Any,
) -> Outcome | None:
    """Call a handler as :func:`perform` does, including async ones. Give an async handler an AsyncSession."""
    given = {"payload": payload, "kind": kind, "resources": resources, **message}
    return await greenlet_spawn(_performed, queue, given, session, context, awaits=True)


@on_session
def drain(
    session: PlainSession, queue: Queue, *, limit: int = 1000, resources: Mapping[str, Any] = NO_RESOURCES
) -> list[Performed]:
    """Perform what the session has enqueued, and what handlers then enqueue, in the session's open transaction.

    Return what was performed, in order. Everything happens on the session's own connection, and nothing is committed,
    so a test that rolls back leaves nothing behind. Handlers that take a session get *session*. Each handler runs in a
    savepoint, which a raised Outcome rolls back. Messages that others have committed to the queue are performed too. A
    group's follow-up is performed after its members.

    Messages that are due later, or that a rate holds back, stay without an error. A message that is retried without a
    delay is due after the longest wait of its RetryPolicy for that attempt; with a worker the wait is random. A message
    that is released without a delay is due after an hour, so that the drain ends; with a worker it is due at once.

    To remove a channel's rate in the test, call ``queue.configure_channel(session, channel, rate=None)``. To raise the
    rate of a whole queue, call ``queue.configure(session, rate="1000000/s, burst 1000000")``.

    Args:
        session: A session in READ COMMITTED, such as one that joined the test's transaction. For an AsyncSession the
            call returns a coroutine to await; async handlers get the AsyncSession, plain handlers its ``sync_session``.
        limit: The most messages to perform, since a handler that enqueues itself would run for ever.
        resources: As for :func:`perform`.

    Raises:
        InvalidArgument: *session* is no session; more than *limit* messages are due; a kind has no handler; a handler
            takes a resource that *resources* lacks; or a handler is async, and *session* is no AsyncSession.
        Exception: What a handler raised, if a worker would count it as a failure; the savepoint is rolled back. But an
            exception that the handler's RetryPolicy names settles the message, as for :func:`perform`.

    Example:
        >>> @queue.handler("add")
        ... def add(delivery: Delivery) -> None:
        ...     print(sum(delivery.payload))
        >>> with rolled_back(engine) as session:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=[1, 2], kind="add")
        ...     performed = drain(session, queue)
        3
    """
    given: Any = session
    if isinstance(given, async_scoped_session):
        given = given()
    return on(given, lambda found: drained(sync_session_of(found), given, queue, limit, resources))


def drained(
    session: Session, given: object, queue: Queue, limit: int = 1000, resources: Mapping[str, Any] = NO_RESOURCES
) -> list[Performed]:
    """Perform as :func:`drain` does. *given* is the session that the caller gave; async handlers get it."""
    performed, awaits = [], isinstance(given, AsyncSession)
    for number, delivery in enumerate(_deliveries(session, queue)):
        if number == limit:
            raise InvalidArgument(
                f"more than {limit} messages are due in queue {queue.name!r}; a handler enqueues itself again and "
                "again, or give drain a greater limit"
            )
        handler = _handler(queue, delivery.kind)
        own = given if handler.asynchronous else session
        outcome, result = _called(
            queue, handler, delivery, own, None, resources, awaits=awaits, within=session.begin_nested
        )
        performed.append(one := Performed(delivery, outcome, result if outcome is None else None))
        _settle(session, queue, handler, one)
    return performed


def _performed(
    queue: Queue | AnyJob, given: dict[str, Any], session: object, context: Context | None, *, awaits: bool
) -> Outcome | None:
    given = {name: value for name, value in given.items() if value is not UNSET and value is not NO_RESOURCES}
    if isinstance(queue, Job):
        names = queue.schema.signature.parameters
        arguments = {name: given.pop(name) for name in list(given) if name in names}
        if given.get("payload") is not None:
            raise InvalidArgument(f"got {given['payload']!r:.80} for a job; give its arguments by name")
        given |= {"payload": queue.schema.encode((), arguments), "kind": queue.kind}
        queue = cast("Queue", queue.queue)
    resources = given.pop("resources", NO_RESOURCES)
    handler = _handler(queue, given.get("kind", "default"))
    delivery = make_delivery(queue, **{"payload": None, **given})
    return _called(queue, handler, delivery, session, context, resources, awaits=awaits)[0]


def _deliveries(session: Session, queue: Queue) -> Iterator[Delivery]:
    given: object = queue
    if not isinstance(given, Queue):
        advice = "drain performs a whole queue: give its queue" if isinstance(given, Job) else "give a Queue"
        raise InvalidArgument(f"queue is {given!r:.80}; {advice}")
    target = queue._target  # noqa: SLF001 - what a worker of the queue has
    consumer = Consumer(target, queue.codec)
    connection = connection_of(session, target)
    check_installed(connection, target.schema)
    follow_dead(connection, queue, target)
    while True:
        send_recorded(session)
        connection = connection_of(session, target)
        dequeued = take_messages(connection, target, limit=1, lease=_LEASE, consumer=consumer.name, lease_id=None)
        if dequeued.lease is None:
            folded = fold_groups(connection, target.schema, limit=100_000, groups=1_000, notify=False)
            if folded is not None and folded.finished:
                continue
            return
        yield from delivered(dequeued.rows, queue.codec, {"lease": dequeued.lease, **dequeued.shared})[0]


def _settle(session: Session, queue: Queue, handler: Handler, performed: Performed) -> None:
    delivery = performed.delivery
    # The longest wait instead of a random one, so that a test knows when the next attempt is due.
    policy = replace(handler.retry or _RETRY, jitter=0)
    decision = handling.of_return(performed.outcome, delivery, policy)
    if decision.verb is Verb.COMPLETE and delivery.keeps_result:
        value = performed.result if handler.batch is None else results_of_batch(performed.result, 1)[0]
        decision = replace(decision, result=encoded_result(queue.codec, handler.schema, value))
    if decision.verb is Verb.RELEASE and decision.delay is None:
        # Without a delay, drain would deliver the message to the same handler for ever.
        decision = replace(decision, delay=_LEASE)
    record(session, [decision.operation(queue._target, delivery)])  # noqa: SLF001 - what a worker of the queue has


def _handler(queue: Queue, kind: str) -> Handler:
    if (handler := handlers_of(queue).get(kind)) is None:
        known = ", ".join(map(repr, sorted(handlers_of(queue)))) or "none"
        raise InvalidArgument(f"queue {queue.name!r} has no handler of kind {kind!r:.80}; it has {known:.500}")
    return handler


def _called(  # noqa: PLR0917 - what a call is made of
    queue: Queue,
    handler: Handler,
    delivery: Delivery,
    session: object,
    context: Context | None,
    resources: Mapping[str, Any],
    *,
    awaits: bool,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[Outcome | None, Any]:
    if handler.asynchronous and not awaits:
        raise InvalidArgument(
            f"the handler of kind {handler.kind!r} is async; await aperform, or drain an AsyncSession"
        )
    if handler.session and session is None:
        raise InvalidArgument(f"the handler of kind {handler.kind!r} takes a session; call perform(session=...)")
    for name in handler.resources.values():
        if name not in resources:
            raise InvalidArgument(
                f"the handler of kind {handler.kind!r} takes the resource {name!r}; call perform or drain with "
                f"resources={{{name!r}: ...}}"
            )
    found = context or make_context(delivery, queue=queue)
    own = found.with_session(session if handler.session else None, resources)
    call = call_of(handler, middleware_for(handler, middleware_of(queue)), own)
    try:
        with within():
            result = call()
            if handler.asynchronous:
                result = await_only(finished(result))
            elif inspect.isawaitable(result) and awaits and not handler.session:
                # A plain function returned a coroutine: a worker awaits it, unless the function takes a session.
                result = await_only(result)
            outcome = own._held.outcomes.get(own.delivery.message_id)  # noqa: SLF001 - what context.bury(delivery) asks
            return outcome or handling.returned_outcome(result), result
    except (Retry, Release, Bury) as outcome:
        return outcome, None
    except Exception as error:
        # The test shall see an exception that the policy does not name.
        if (named := handling.outcome_of(error, handler.retry or _RETRY)) is None:
            raise
        return named, None
