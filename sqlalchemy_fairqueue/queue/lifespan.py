"""Functions that run at the start and at the stop of a worker, and the resources that they give to handlers.

This module keeps what was declared; workers call the functions.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.signatures import hints_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    F = TypeVar("F", bound=Callable[..., Any])

_RESERVED = frozenset({"delivery", "session", "context"})
_YIELDING = {Generator, Iterator, Iterable, AsyncGenerator, AsyncIterator, AsyncIterable}
_KINDS = inspect.Parameter


@dataclass(frozen=True, slots=True)
class LifespanFunction:
    """A function that a worker calls at its start or at its stop.

    Attributes:
        function: The function.
        name: Its name, which is that of its resource.
        takes: The resources that it takes: names of parameters, each with the name of the resource.
        resource_type: The annotated type that it returns or yields; None without an annotation.
        asynchronous: Whether it is to be awaited.
        generator: Whether it yields: what follows the yield runs at the stop.
    """

    function: Callable[..., Any]
    name: str
    takes: Mapping[str, str]
    resource_type: Any
    asynchronous: bool
    generator: bool


class LifespanMethods(QueueBase):
    """The functions around the handlers of a queue in each worker."""

    def _begin(self) -> None:
        super()._begin()
        self._starts: dict[str, LifespanFunction] = {}
        self._stops: dict[str, LifespanFunction] = {}

    def on_start(self, function: F, /) -> F:
        """Declare a function that each worker of this queue calls when it starts: a decorator.

        What it returns is a resource, which has the function's name. It may also yield the resource once; what follows
        the ``yield`` runs when the worker stops::

            @queue.on_start
            def http() -> Iterator[Client]:
                with Client() as client:
                    yield client

        Handlers declared after it take the resource by a parameter of this name, or by one without a default whose
        annotation is the type that the function returns or yields. So do further functions of on_start and
        :meth:`on_stop`. ``context.resources`` has all of them by name, and ``context.resource(Client)`` finds one by
        its type: for jobs, whose parameters are the payload's, and for middleware. A handler with
        ``isolation="process"`` takes none: its child process runs no such functions.

        The functions run in the order of their declaration, those of the first queue of the worker first, after the
        schemas were checked and before the first message is taken. A function of several queues of a worker runs
        once, for all of them. In a Worker they run in the thread that starts it. In an AsyncWorker all of them run in
        one task, plain ones in threads; only an AsyncWorker calls async ones.

        If one fails, what had been started is stopped, and the start raises
        :class:`~sqlalchemy_fairqueue.errors.StartError`. A worker that is started again calls them again.

        Returns:
            The function itself.

        Raises:
            InvalidArgument: It takes something that no resource is; or the queue has a resource of this name.

        Example:
            >>> @queue.on_start
            ... def greeting():
            ...     yield "hello"
            ...     print("stopped")
            >>> @queue.handler("greet")
            ... def greet(delivery: Delivery, greeting: str) -> None:
            ...     print(greeting, delivery.channel)
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="greet")
            >>> Worker(engine, queue, concurrency=1).run(drain=True)
            hello customer-7
            stopped
        """
        declared = _declared(function, "on_start", self._starts)
        if declared.name in _RESERVED:
            raise InvalidArgument(
                f"on_start function {declared.name!r} has a name that handlers use for something else; rename it"
            )
        if declared.name in self._starts:
            raise InvalidArgument(
                f"queue {self.name!r} has a resource {declared.name!r} already, of "
                f"{self._starts[declared.name].function!r}; give this function another name"
            )
        self._starts[declared.name] = declared
        return function

    def on_stop(self, function: F, /) -> F:
        """Declare a function that each worker of this queue calls when it stops: a decorator.

        It may take resources as functions of :meth:`on_start` do. The functions run after the last handler has
        returned or was left behind, and after all deliveries are settled: those that were declared last first, then
        what follows the yields of on_start functions, also in reverse order. They run whenever all on_start functions
        of the queue have run, however the worker ends, unless its process is killed; an error is logged, and the others
        still run. A function that several queues of a worker declare runs once.

        Returns:
            The function itself.

        Raises:
            InvalidArgument: It takes something that no resource is, or it is a generator, or is declared already.

        Example:
            >>> @queue.on_stop
            ... def say_so() -> None:
            ...     print("stopped")
        """
        declared = _declared(function, "on_stop", self._starts)
        if declared.generator:
            raise InvalidArgument(f"on_stop function {declared.name!r} is a generator; do not yield")
        if declared.name in self._stops:
            raise InvalidArgument(f"queue {self.name!r} has an on_stop function {declared.name!r} already")
        self._stops[declared.name] = declared
        return function


def lifespan_of(queue: LifespanMethods) -> tuple[tuple[LifespanFunction, ...], tuple[LifespanFunction, ...]]:
    """Return the on_start and the on_stop functions of a queue, in the order of their declaration."""
    return tuple(queue._starts.values()), tuple(queue._stops.values())  # noqa: SLF001 - for workers alone


def resources_taken(
    function: Callable[..., Any], parameters: Iterable[inspect.Parameter], known: Mapping[str, LifespanFunction]
) -> dict[str, str]:
    """Return the names of the resources that a function takes, by its parameters.

    Raises:
        InvalidArgument: Several resources have the type of a parameter.
    """
    if not known:
        return {}
    hints = hints_of(function)
    taken: dict[str, str] = {}
    for one in parameters:
        if one.kind not in {_KINDS.POSITIONAL_OR_KEYWORD, _KINDS.KEYWORD_ONLY}:
            continue
        if one.name in known:
            taken[one.name] = one.name
        elif one.default is _KINDS.empty and one.name in hints and one.name not in _RESERVED:
            found = resource_of_type(hints[one.name], known, f"parameter {one.name!r} of {function!r:.80}")
            taken |= {} if found is None else {one.name: found}
    return taken


def resource_of_type(wanted: Any, known: Mapping[str, LifespanFunction], whose: str) -> str | None:
    """Return the name of the resource that is declared with exactly this type, if any.

    Raises:
        InvalidArgument: Several resources are.
    """
    found = [name for name, one in known.items() if one.resource_type is not None and one.resource_type == wanted]
    if len(found) > 1:
        raise InvalidArgument(f"{whose} may be any of the resources {', '.join(found)}; take one by its name")
    return found[0] if found else None


def _declared(function: object, verb: str, known: Mapping[str, LifespanFunction]) -> LifespanFunction:
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise InvalidArgument(f"{verb} got {function!r:.80}; give a function that has a name")
    plain = inspect.unwrap(function)
    generator, async_generator = inspect.isgeneratorfunction(function), inspect.isasyncgenfunction(function)
    if not (generator or async_generator) and (inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)):
        raise InvalidArgument(
            f"{verb} function {function.__name__!r} is decorated, and what it yields would not be used; leave out "
            "@contextmanager and the like: the worker goes on after the yield by itself"
        )
    parameters = parameters_of(function)
    taken = resources_taken(function, parameters, known)
    for one in parameters:
        if one.name not in taken and one.default is _KINDS.empty:
            raise InvalidArgument(
                f"{verb} function {function.__name__!r} takes {str(one)!r}, which is no resource; {_known_words(known)}"
            )
    return LifespanFunction(
        function=function,
        name=function.__name__,
        takes=taken,
        resource_type=_resource_type(function, yields=generator or async_generator),
        asynchronous=async_generator or inspect.iscoroutinefunction(function),
        generator=generator or async_generator,
    )


def _known_words(known: Mapping[str, LifespanFunction]) -> str:
    return f"it may take those that were declared before: {', '.join(known) or 'there are none'}"


def _resource_type(function: Callable[..., Any], *, yields: bool) -> Any:
    found = hints_of(function).get("return")
    if yields:
        found = get_args(found)[0] if get_origin(found) in _YIELDING and get_args(found) else None
    return None if found in {Any, type(None)} else found
