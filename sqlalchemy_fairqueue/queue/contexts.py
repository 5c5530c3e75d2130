"""Contexts, by which a handler asks about its delivery while it works, and the middleware around handlers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy_fairqueue.database.asynchronous import AsyncSession, async_scoped_session
from sqlalchemy_fairqueue.errors import InvalidArgument, WorkerError
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.groups import GroupMethods, MemberGroup
from sqlalchemy_fairqueue.queue.instrumentation import installed
from sqlalchemy_fairqueue.queue.signatures import is_asynchronous, parameters_of
from sqlalchemy_fairqueue.unit_of_work.sessions import session_of
from sqlalchemy_fairqueue.values.checks import check_count
from sqlalchemy_fairqueue.values.messages import MOST_COST, Delivery, GroupCounts, counts_of_headers, group_of_headers
from sqlalchemy_fairqueue.values.outcomes import Bury, Outcome, Release, Retry

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy_fairqueue.queue.handlers import Handler


T = TypeVar("T")
handling: ContextVar[Delivery | None] = ContextVar("fairqueue_handling", default=None)
"""The delivery that the running handler works on. Tasks and threads see it if they copy the context variables."""
_NO_RESOURCES: Mapping[str, Any] = MappingProxyType({})


class HeldState(Protocol):
    """The state of a delivery that a worker holds. A :class:`Context` reads and writes this state."""

    cancelled: bool
    stopping: bool
    max_attempts: int
    cost: int | None
    outcomes: dict[int, Outcome]

    @property
    def batch(self) -> Sequence[HeldState]:
        """The states of all deliveries of the handler's call, this one first."""
        ...

    @property
    def delivery(self) -> Delivery: ...

    @property
    def lost(self) -> bool: ...

    @property
    def timed_out(self) -> bool: ...

    @property
    def enqueues(self) -> GroupMethods | None:
        """The queue of the delivery, through which ``context.group`` adds members; None in a child process."""
        ...

    def check(self) -> None: ...


class Context:
    """A running handler's view of its work; handlers take it as ``context``.

    A handler in a thread cannot be interrupted, so a long handler should call ``check`` between its steps.

    Example:
        >>> @queue.handler("split")
        ... def split(delivery: Delivery, context: Context) -> None:
        ...     for page in delivery.payload["pages"]:
        ...         context.check()  # raises when the message is cancelled, lost, or out of time
        ...         print(page, f"in attempt {context.delivery.attempt} of {context.max_attempts}")
        >>> perform(queue, {"pages": ["one", "two"]}, kind="split", attempt=2, max_attempts=5)
        one in attempt 2 of 5
        two in attempt 2 of 5
    """

    __slots__ = ("_held", "_resources", "_session", "_variables")

    def __init__(self, held: HeldState, session: Any = None, resources: Mapping[str, Any] = _NO_RESOURCES) -> None:
        self._held = held
        self._session = session
        self._resources = resources
        self._variables: Variables | None = None

    @property
    def delivery(self) -> Delivery:
        """The delivery that the handler works on; the first one if it works on a batch."""
        return self._held.delivery

    @property
    def deliveries(self) -> list[Delivery]:
        """All deliveries that the handler works on, in order; several if the handler is declared with ``batch``."""
        return [held.delivery for held in self._held.batch]

    def retry(self, delivery: Delivery, *, delay: timedelta | None = None, error: str | None = None) -> None:
        """Retry one delivery of a batch, and count its attempt, however the others are settled.

        The worker settles the delivery when the handler returns, in the handler's transaction if it takes a session. If
        the handler raises, this call has no effect. For *delay* and *error* see :class:`~sqlalchemy_fairqueue.Retry`.

        Example:
            >>> @queue.handler("embed", batch=Batch(max_messages=50))
            ... def embed(deliveries: list[Delivery], context: Context) -> None:
            ...     for delivery in context.deliveries:
            ...         if context.stopping:
            ...             context.release(delivery)
            ...         elif not delivery.payload:
            ...             context.bury(delivery, "an empty text")
            ...         elif delivery.payload == "busy":
            ...             context.retry(delivery, delay=timedelta(minutes=1), error="busy")
            >>> perform(queue, "busy", kind="embed").error
            'busy'
        """
        self._settle(delivery, Retry(delay=delay, error=error))

    def release(self, delivery: Delivery, *, delay: timedelta | None = None) -> None:
        """Give one delivery of a batch back without counting the attempt, under the rules of :meth:`retry`."""
        self._settle(delivery, Release(delay=delay))

    def bury(self, delivery: Delivery, reason: str) -> None:
        """Make one message of a batch a dead letter, under the rules of :meth:`retry`."""
        self._settle(delivery, Bury(reason))

    def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        self._check(delivery)
        self._held.outcomes[delivery.message_id] = outcome

    def _check(self, delivery: Delivery) -> None:
        if all(delivery is not held.delivery and delivery != held.delivery for held in self._held.batch):
            raise InvalidArgument(f"delivery is {delivery!r:.80}, not of this call; give one of its deliveries")

    @property
    def session(self) -> Any:
        """The Session that the handler takes, or the AsyncSession of an async handler; None if it takes none.

        What middleware writes with it belongs to the handler's transaction. Middleware must not commit.

        Example:
            >>> @queue.middleware
            ... def as_tenant(context: Context, proceed: Callable[[], object]) -> object:
            ...     context.session.execute(select(func.set_config("app.tenant", context.delivery.channel, True)))
            ...     return proceed()
            >>> @queue.handler("call")
            ... def call(delivery: Delivery, session: Session) -> None:
            ...     print(session.scalar(select(func.current_setting("app.tenant"))))
            >>> with Session(engine) as session:
            ...     perform(queue, 1, kind="call", channel="customer-7", session=session)
            customer-7
        """
        return self._session

    @property
    def resources(self) -> Mapping[str, Any]:
        """The resources that the queue's :meth:`~sqlalchemy_fairqueue.Queue.on_start` functions made, by name.

        A child process (``isolation="process"``) has none.

        Example:
            >>> @queue.handler("call")
            ... def call(delivery: Delivery, context: Context) -> None:
            ...     print(sorted(context.resources), context.resource(dict))
            >>> perform(queue, 1, kind="call", resources={"numbers": {"customer-7": 555}})
            ['numbers'] {'customer-7': 555}
        """
        return self._resources

    def resource(self, kind: type[T]) -> T:
        """Return the resource that is an instance of this class. If there is not exactly one, raise InvalidArgument."""
        found = [name for name, one in self._resources.items() if isinstance(one, kind)]
        if len(found) != 1:
            those = (
                f"several are: {', '.join(found)}" if found else f"there are: {', '.join(self._resources) or 'none'}"
            )
            raise InvalidArgument(
                f"no single resource is a {kind.__name__}; {those}; declare one with @queue.on_start, or take one by "
                "its name from context.resources"
            )
        resource: T = self._resources[found[0]]
        return resource

    @property
    def group(self) -> MemberGroup | None:
        """The group of the message; None if it is in no group, or if the handler runs in a child process.

        If the messages of a batch are in different groups, this raises InvalidArgument; use :meth:`group_of`.

        See Also:
            :meth:`MemberGroup.within`
        """
        if len({group_of_headers(held.delivery.headers) for held in self._held.batch}) > 1:
            raise InvalidArgument("the messages of this batch are in different groups; use context.group_of(delivery)")
        return self.group_of(self.delivery)

    def group_of(self, delivery: Delivery) -> MemberGroup | None:
        """Return the group of one delivery of a batch, as :attr:`group` does for a single message.

        Example:
            >>> @queue.handler("split", batch=Batch(max_messages=50))
            ... def split(deliveries: list[Delivery], context: Context) -> None:
            ...     for delivery in deliveries:
            ...         print(context.group_of(delivery))
            >>> perform(queue, "no member", kind="split")
            None
        """
        self._check(delivery)
        group_id, queue = group_of_headers(delivery.headers), self._held.enqueues
        if group_id is None or queue is None:
            return None
        return MemberGroup(queue, self._session, delivery, group_id)

    @property
    def after_group(self) -> GroupCounts | None:
        """The counts of the group that the message follows; None if it follows none.

        See Also:
            :class:`~sqlalchemy_fairqueue.reports.GroupCounts`
        """
        return counts_of_headers(self.delivery.headers)

    @property
    def cancelled(self) -> bool:
        """Whether a message that the handler works on was cancelled. If so, return soon, as the session cannot commit.

        Example:
            >>> context = make_context(make_delivery(queue, 1), cancelled=True)
            >>> context.cancelled, context.stopping, context.lost, context.timed_out
            (True, False, False, False)
        """
        return any(held.cancelled for held in self._held.batch)

    @cancelled.setter
    def cancelled(self, cancelled: bool) -> None:
        self._held.cancelled = cancelled

    @property
    def stopping(self) -> bool:
        """Whether the worker is stopping; the handler may go on until the grace period ends."""
        return self._held.stopping

    @property
    def max_attempts(self) -> int:
        """After how many attempts the message is dead, by its own limit or the retry policy's, whichever is lower."""
        return self._held.max_attempts

    @property
    def cost(self) -> int | None:
        """What this run of the handler costs, in the unit of ``enqueue(cost=)``; the handler may assign it.

        The worker settles the delivery with this cost (0 to 1,000,000,000), however the handler ends. If it differs
        from the declared cost, the channel pays the difference or gets it back. None, the initial value, means the
        declared cost or, in a queue that is fair by seconds, the handler's time in milliseconds. A handler that settles
        its delivery by a verb passes the cost to the verb. The deliveries of a batch share the cost equally.

        Example:
            >>> @queue.handler("ask")
            ... def ask(delivery: Delivery, context: Context) -> None:
            ...     context.cost = 412  # tokens that the answer took
            >>> perform(queue, "why?", kind="ask")
        """
        return self._held.cost

    @cost.setter
    def cost(self, cost: int | None) -> None:
        if cost is not None:
            check_count("cost", cost, 0, MOST_COST)
        self._held.cost = cost

    @property
    def lost(self) -> bool:
        """Whether the lease may have ended, or the worker has settled the message although the handler still runs."""
        return self._held.lost

    @property
    def timed_out(self) -> bool:
        """Whether the handler's timeout is over."""
        return self._held.timed_out

    def with_session(self, session: Any, resources: Mapping[str, Any] | None = None) -> Context:
        """Return a copy of the context with this session, and with these resources if they are given."""
        return Context(self._held, session, self._resources if resources is None else resources)

    def check(self) -> None:
        """Raise LeaseLost, MessageCancelled or HandlerTimeout if the handler must not go on."""
        self._held.check()


def called(context: Context, function: Callable[[], Any]) -> Any:
    before = handling.get()
    handling.set(context.delivery)
    try:
        result = function()
        if (session := session_of(context.session)) is not None:
            # Flushed here, so that middleware sees an error of the flush too.
            session.flush()
            context._variables = copy_context()  # noqa: SLF001 - a part of it
        return result
    finally:
        handling.set(before)


async def acalled(context: Context, function: Callable[[], Awaitable[Any]]) -> Any:
    before = handling.get()
    handling.set(context.delivery)
    try:
        result = await finished(function())
        if isinstance(context.session, (AsyncSession, async_scoped_session)):
            await context.session.flush()
            context._variables = copy_context()  # noqa: SLF001 - a part of it
        return result
    finally:
        handling.set(before)


def variables_of(context: Context) -> Variables | None:
    """Return the ``contextvars`` as they were when the handler returned; None if it takes no session, or raised."""
    return context._variables  # noqa: SLF001 - a part of it


async def finished(result: Awaitable[Any]) -> Any:
    """Await a call, and then its result if that is awaitable too (``return session.execute(...)``)."""
    found = await result
    return await found if inspect.isawaitable(found) else found


Middleware = Callable[[Context, Callable[[], Any]], Any]
"""A middleware for plain handlers: called with the context and ``proceed``; returns what ``proceed()`` returned."""

AsyncMiddleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""A middleware for async handlers: called with the context and ``proceed``; returns what ``await proceed()`` gave."""

AnyMiddleware = Middleware | AsyncMiddleware
M = TypeVar("M", bound=AnyMiddleware)


class MiddlewareMethods(QueueBase):
    """The middleware of a queue."""

    def _begin(self) -> None:
        super()._begin()
        self._middleware: list[AnyMiddleware] = []

    def middleware(self, function: M, /) -> M:
        """Declare a function that is called around each handler of this queue. Use it as a decorator.

        The function takes the :class:`~sqlalchemy_fairqueue.Context` of the delivery, and ``proceed``, which calls the
        handler. The function returns what ``proceed`` returned. If the function raises or returns a Retry, Release or
        Bury instead, this decides the settlement. For any other exception the retry policy decides.

        An async function wraps async handlers and awaits ``proceed()``; a plain one wraps plain handlers, in their
        thread. A queue with async and plain handlers needs a middleware for each. The middleware declared first is the
        outermost; ``Worker(middleware=[...])`` wraps the queue's middleware.

        Middleware runs in the transaction of ``context.session``, before the completion, and within the timeout of the
        handler. It runs once for each attempt, and again if the transaction could not be serialized. It does not run
        for payloads that cannot be decoded. With ``isolation="process"`` it runs in the worker's process.

        Example:
            >>> @queue.middleware
            ... def named(context: Context, proceed):
            ...     print("begin", context.delivery.kind)
            ...     return proceed()
            >>> @queue.handler("parse")
            ... def parse(delivery: Delivery) -> None:
            ...     print("parsed")
            >>> perform(queue, 1, kind="parse")
            begin parse
            parsed
        """
        check_middleware(function)
        self._middleware.append(function)
        return function


def check_middleware(function: object) -> None:
    if not callable(function):
        raise InvalidArgument(f"middleware is {function!r:.80}; give a function of context and proceed")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(
            f"middleware {function!r:.80} is a generator, which nobody would run; call proceed() and return its result"
        )
    try:
        inspect.Signature(parameters_of(function)).bind(None, None)
    except TypeError:
        raise InvalidArgument(
            f"middleware {function!r:.80} does not take context and proceed; give it these two parameters"
        ) from None


def middleware_of(queue: MiddlewareMethods, outer: Sequence[AnyMiddleware] = ()) -> list[AnyMiddleware]:
    return [*outer, *queue._middleware]  # noqa: SLF001 - for workers alone


def middleware_for(handler: Handler, middleware: Sequence[AnyMiddleware]) -> tuple[AnyMiddleware, ...]:
    found = tuple(one for one in middleware if is_asynchronous(one) == handler.asynchronous)
    if middleware and not found:
        kind, other = ("async", "plain") if handler.asynchronous else ("plain", "async")
        raise WorkerError(
            f"the handler of kind {handler.kind!r} is {kind}, and all middleware is {other}: nothing would go around "
            f"it; declare an {kind} middleware too".replace("an plain", "a plain")
        )
    return found


def call_of(
    handler: Handler, middleware: Sequence[AnyMiddleware], context: Context, function: Callable[..., Any] | None = None
) -> Callable[[], Any]:
    """Return a call of a handler, or of *function* in its place, within *middleware*, the first one outermost."""
    given: dict[str, Any] = {}
    if handler.session:
        given["session"] = context.session
    if handler.context:
        given["context"] = context
    for parameter, resource in handler.resources.items():
        given[parameter] = context.resources[resource]
    first = context.deliveries if handler.batch else context.delivery
    plain: Callable[[], Any] = partial(function or handler.function, first, **given)
    call: Callable[[], Any] = partial(acalled if handler.asynchronous else called, context, plain)
    for one in reversed(middleware):
        call = partial(one, context, call)
    if (instrumentation := installed.instrumentation) is not None:
        around = instrumentation.around_async if handler.asynchronous else instrumentation.around
        call = partial(around, context, call)
    return call
