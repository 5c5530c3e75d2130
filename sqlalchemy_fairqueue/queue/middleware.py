"""Middleware of a queue: functions around its handlers.

This module keeps what was declared and puts the calls together; workers and tests make the calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy_fairqueue.errors import InvalidArgument, WorkerError
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.contexts import Context, acalled, called
from sqlalchemy_fairqueue.queue.instrumentation import installed
from sqlalchemy_fairqueue.queue.signatures import is_asynchronous, parameters_of

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.queue.handlers import Handler

Middleware = Callable[[Context, Callable[[], Any]], Any]
"""A middleware for plain handlers: called with the context and ``proceed``; returns what ``proceed()`` returned."""

AsyncMiddleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""A middleware for async handlers: called with the context and ``proceed``; returns what ``await proceed()`` did."""

AnyMiddleware = Middleware | AsyncMiddleware
M = TypeVar("M", bound=AnyMiddleware)


class MiddlewareMethods(QueueBase):
    """The middleware of a queue."""

    def _begin(self) -> None:
        super()._begin()
        self._middleware: list[AnyMiddleware] = []

    def middleware(self, function: M, /) -> M:
        """Declare a function that is called around each handler of this queue: a decorator.

        The function takes the :class:`~sqlalchemy_fairqueue.Context` of the delivery and ``proceed``, which calls the
        handler. It must return what ``proceed`` returned: an outcome, as a rule None. An async function goes around
        async handlers and awaits ``proceed()``; a plain one goes around plain handlers, in their thread. A queue that
        has both kinds of handlers needs a middleware for each.

        It counts as a part of the handler. It runs in the transaction of the handler's session (``context.session``),
        before the completion. An outcome that it raises or returns replaces that of the handler. An exception fails the
        attempt. Its time counts towards the timeout. It is called once an attempt, again if the database could not
        serialize the transaction, and not at all for payloads that cannot be decoded. With ``isolation="process"`` it
        runs in the worker, around the call of the child process.

        What is declared first is outermost; ``Worker(middleware=[...])`` goes around all of them.

        Returns:
            The function itself.

        Raises:
            InvalidArgument: It does not take two arguments.

        Example:
            >>> @queue.middleware
            ... def named(context: Context, proceed):
            ...     print("begin", context.delivery.kind)
            ...     return proceed()
            >>> @queue.handler("parse")
            ... def parse(delivery: Delivery) -> None:
            ...     print("parsed")
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
            >>> Worker(engine, queue, concurrency=1).run(drain=True)
            begin parse
            parsed
        """
        check_middleware(function)
        self._middleware.append(function)
        return function


def check_middleware(function: object) -> None:
    """Refuse what cannot be called around a handler.

    Raises:
        InvalidArgument: It is no function of two arguments, or a generator.
    """
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
    """Return the middleware of a worker and then of a queue, outermost first."""
    return [*outer, *queue._middleware]  # noqa: SLF001 - a queue's part shows it to nobody else


def middleware_for(handler: Handler, middleware: Sequence[AnyMiddleware]) -> tuple[AnyMiddleware, ...]:
    """Return the middleware that goes around a handler: async for an async one.

    Raises:
        WorkerError: There are some, and none for handlers of its kind, plain or async.
    """
    found = tuple(one for one in middleware if is_asynchronous(one) == handler.asynchronous)
    if middleware and not found:
        kind, other = ("async", "plain") if handler.asynchronous else ("plain", "async")
        raise WorkerError(
            f"the handler of kind {handler.kind!r} is {kind}, and all middleware is {other}: nothing would go around "
            f"it; declare an {kind} middleware too".replace("an plain", "a plain")
        )
    return found


def call_of(
    handler: Handler,
    middleware: Sequence[AnyMiddleware],
    context: Context,
    function: Callable[..., Any] | None = None,
) -> Callable[[], Any]:
    """Bind a handler to its arguments, and put middleware around it.

    Args:
        handler: The handler.
        middleware: The functions that go around it, outermost first.
        context: The context of its delivery, with the session that it takes.
        function: To be called in place of its function.
    """
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
