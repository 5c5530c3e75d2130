"""Handlers of a queue by kind, and functions that each worker calls at its start and stop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, get_args, get_origin, overload

from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.codecs import ON_DEAD
from sqlalchemy_fairqueue.database.asynchronous import AsyncSession
from sqlalchemy_fairqueue.errors import InvalidArgument, UnhandledKindWarning
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.signatures import class_of, hints_of, is_asynchronous, parameters_of, warn
from sqlalchemy_fairqueue.values.checks import check_duration, check_name
from sqlalchemy_fairqueue.values.messages import Batch
from sqlalchemy_fairqueue.values.outcomes import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.queue.payloads import PayloadSchema


_RESERVED = frozenset({"delivery", "session", "context"})
_YIELDING = {Generator, Iterator, Iterable, AsyncGenerator, AsyncIterator, AsyncIterable}
_KINDS = inspect.Parameter


@dataclass(frozen=True, slots=True)
class LifespanFunction:
    """A function that a worker calls at its start or stop.

    Attributes:
        name: The function's name. The resource of an on_start function has this name too.
        takes: The names of the resources that the function takes, by parameter.
        resource_type: The type of the resource, from the function's annotation; None if unknown.
    """

    function: Callable[..., Any]
    name: str
    takes: Mapping[str, str]
    resource_type: Any
    asynchronous: bool
    generator: bool


class LifespanMethods(QueueBase):
    """The functions that each worker of a queue calls at its start and stop."""

    def _begin(self) -> None:
        super()._begin()
        self._starts: dict[str, LifespanFunction] = {}
        self._stops: dict[str, LifespanFunction] = {}

    def on_start(self, function: F, /) -> F:
        """Declare a function that each worker of this queue calls when it starts. Use it as a decorator.

        What the function returns is a resource with the function's name. Instead the function may yield the resource
        once; the code after the ``yield`` runs when the worker stops.

        A handler declared later takes the resource by a parameter of this name, or by a parameter without a default
        whose annotation is the type that this function is annotated to return or yield. So do later on_start and
        :meth:`on_stop` functions. Jobs and middleware find the resource by class (``context.resource(Client)``) or by
        name (``context.resources``). A handler with ``isolation="process"`` takes no resources.

        The functions run in the order of their declaration, queue by queue, before the first message is taken. A
        function that several queues of a worker declare runs once. A Worker calls the functions in the thread that
        starts it, and refuses async ones. An AsyncWorker awaits async functions in one task, and runs plain ones in
        threads. If a function fails, the worker runs the code after the ``yield`` of functions that ran before, and the
        start raises :class:`~sqlalchemy_fairqueue.errors.StartError`.

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
        """Declare a function that each worker of this queue calls when it stops. Use it as a decorator.

        The function takes resources as :meth:`on_start` functions do, and may not yield. On_stop functions run when all
        handlers have returned and all deliveries are settled, or when the worker no longer waits for that. They run in
        reverse order of declaration. Then the code after the yields of on_start functions runs, in reverse order too.
        If an on_start function of a queue failed, the on_stop functions of this queue do not run. If an on_stop
        function fails, the others still run.

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
    return tuple(queue._starts.values()), tuple(queue._stops.values())  # noqa: SLF001 - for workers alone


def resources_taken(
    function: Callable[..., Any], parameters: Iterable[inspect.Parameter], known: Mapping[str, LifespanFunction]
) -> dict[str, str]:
    """Return a dict from the name of each parameter that takes a resource to the name of the resource."""
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


F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")
Isolation = Literal["none", "process"]
_LEAST = timedelta(microseconds=1)
_NOT_A_FUNCTION = "; a typed job is its own handler already: schedule it by job.schedule(...)"


class JobOptions(TypedDict, total=False):
    """All options of a handler or job but ``batch``, which changes what the function takes."""

    retry: RetryPolicy | None
    timeout: timedelta | None
    isolation: Isolation


class HandlerOptions(JobOptions, total=False):
    """All options of a handler or job, with ``batch``."""

    batch: Batch | None


@dataclass(frozen=True, slots=True)
class Handler:
    """The handler of a kind: the function that workers call, its options, and which arguments the function takes.

    Attributes:
        retry: The policy of this kind. None: the worker's policy.
        session_type: The class that the parameter ``session`` is annotated with, or None.
        resources: The names of the resources that the function takes, by parameter.
    """

    kind: str
    function: Callable[..., Any]
    retry: RetryPolicy | None
    timeout: timedelta | None
    session: bool
    context: bool
    asynchronous: bool
    isolated: bool
    schema: PayloadSchema | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    session_type: type | None = None
    batch: Batch | None = None


class HandlerMethods(LifespanMethods):
    """The handlers of a queue's messages, by kind."""

    def _begin(self) -> None:
        super()._begin()
        self._handlers: dict[str, Handler] = {}
        self._warned_kinds: set[str] = set()
        self._followed: set[str] = set()

    @overload
    def handler(self, kind: F, /) -> F: ...

    @overload
    def handler(self, kind: str = "default", **options: Unpack[HandlerOptions]) -> Callable[[F], F]: ...

    def handler(self, kind: Any = "default", **options: Unpack[HandlerOptions]) -> Any:
        """Declare the function that workers call with the deliveries of a kind.

        ``@queue.handler`` means ``@queue.handler()``: the kind is "default", as for messages without a kind. The
        function takes the delivery, and may take ``session``, ``context`` and resources of :meth:`on_start`. If the
        function raises or returns an :class:`Outcome` (Retry, Release, Bury), the Outcome says how to settle the
        delivery. Any other return completes the delivery. For any other exception the retry policy decides.

        If the function takes ``session``, it gets a Session, or an AsyncSession if it is async. After the return the
        worker commits the function's writes and the completion together, so these effects happen exactly once. A commit
        by the function is not allowed and gives a :class:`~sqlalchemy_fairqueue.errors.HandlerTransactionWarning`;
        ``begin_nested`` is allowed. Without ``session`` the completion follows the return, and all effects happen at
        least once. ``context`` tells a long function whether to stop (:class:`sqlalchemy_fairqueue.Context`).

        Args:
            retry: A policy for this kind instead of the worker's.
            timeout: How long a call may take; then the attempt has failed, and the retry policy decides about the
                message. An async function is cancelled and a child process killed. A thread cannot be interrupted: its
                function goes on, and counts towards ``concurrency``. But its session refuses to commit,
                ``context.check()`` raises, and nothing that the function does settles the message. Default: no limit.
            isolation: "process" runs the function in a child process, for code that may hang or crash. The child is
                killed at the timeout, when the message is lost or cancelled, and when the grace period of a stop ends.
                The function must be plain, take no ``session``, and stand at the top of a module that the child can
                import; payload and headers must be picklable. Default: in the worker's process.
            batch: The function gets a list of ready deliveries of one channel, in order: at least one, at most what the
                Batch allows. The deliveries are settled together, in the transaction of the session if the function
                takes one; ``context.retry``, ``release`` and ``bury`` settle single deliveries differently. If the
                function raises, its exception decides about all deliveries. But if a message of the batch was
                cancelled, and the function or its COMMIT then raises, the other messages are only released. A message
                that was tried before comes alone, so that it turns no other message into a dead letter. Limits, rates
                and costs count each message.

        Example:
            >>> @queue.handler("parse", timeout=timedelta(minutes=5))
            ... def parse(delivery: Delivery, session: Session) -> None:
            ...     print(delivery.channel, delivery.payload["file"])
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload={"file": "a.pdf"}, kind="parse")
            >>> Worker(engine, queue, concurrency=1).run(drain=True)
            customer-7 a.pdf
        """
        if callable(kind):
            return self.handler(**options)(kind)
        check_name("kind", kind)
        checked = check_options(**options)

        def declare(function: F) -> F:
            wanted, resources = _wanted(function, self._starts)
            self._declare(kind, function, checked, wanted=wanted, resources=resources)
            return function

        return declare

    def on_dead(self, kind: str, /, **options: Unpack[JobOptions]) -> Callable[[F], F]:
        """Declare the handler of messages that report dead letters of a kind. Use it as a decorator.

        The transaction that makes a message a dead letter also enqueues a message of kind ``"on_dead:" + kind`` to the
        same channel, even beyond its max_backlog. *kind* has at most 504 bytes. The function is declared as with
        :meth:`handler`. The payload is a dict with ``message_id``, ``channel``, ``kind``, ``reason``, ``error``,
        ``attempts``, ``key`` and ``ordering_key`` of the dead letter.

        The reports begin when the first worker with the function starts, and include dead letters from all workers.
        Workers without the function release a report up to 15 times; after that its attempts fail. To end the reports,
        call ``configure(on_dead_kinds=...)`` with other kinds only, or with None.

        Example:
            >>> @queue.on_dead("parse")
            ... def tell(delivery: Delivery) -> None:
            ...     print(delivery.channel, delivery.payload["reason"])
            >>> Worker(engine, queue, concurrency=1).run(drain=True)
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
            >>> queue.bury(engine, queue.dequeue(engine), reason="not a file")
            >>> Worker(engine, queue, concurrency=1).run(drain=True)
            customer-7 not a file
        """
        check_name("kind", kind)
        check_name("kind", ON_DEAD + kind)
        self._followed.add(kind)
        return self.handler(ON_DEAD + kind, **options)

    def _declare(
        self,
        kind: str,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        *,
        wanted: Collection[str],  # which of "session" and "context" the function takes
        resources: Mapping[str, str] | None = None,
        written: Callable[..., Any] | None = None,
        schema: PayloadSchema | None = None,
    ) -> None:
        """Declare a handler with options from ``check_options``. *function* may wrap *written*, the user's function."""
        if kind in self._handlers:
            raise InvalidArgument(
                f"kind {kind!r} of queue {self.name!r} has a handler already, {self._handlers[kind].function!r}; "
                "give the other one a kind of its own, such as @queue.handler('parse')"
            )
        written = written or function
        if options["isolated"]:
            _check_isolated(written, wanted, resources)
        self._checked_kinds.clear()
        self._handlers[kind] = Handler(
            kind=kind,
            function=function,
            session="session" in wanted,
            context="context" in wanted,
            asynchronous=is_asynchronous(written),
            schema=schema,
            resources=resources or {},
            session_type=_session_type(written) if "session" in wanted else None,
            **options,
        )

    def _check_kind(self, kind: str) -> None:
        known_here = kind in self._handlers or kind in self._followed
        if not self.check_kinds or not self._handlers or known_here or kind in self._warned_kinds:
            self._checked_kinds.add(kind)
            return
        known = ", ".join(map(repr, sorted(self._handlers)))
        warn(
            f"a message of kind {kind!r} is enqueued, and queue {self.name!r} has no handler for it, only for "
            f"{known:.500}; correct the kind, import the module that declares its handler, or make the queue with "
            "Queue(check_kinds=False) if other processes handle it",
            UnhandledKindWarning,
        )
        # Noted after the warning, so that each enqueue raises the warning if warnings are errors.
        self._warned_kinds.add(kind)


def handlers_of(queue: HandlerMethods) -> Mapping[str, Handler]:
    return queue._handlers  # noqa: SLF001 - for workers alone


def follow_dead(connection: Connection, queue: HandlerMethods, target: Target) -> None:
    if kinds := sorted(queue._followed):  # noqa: SLF001 - for workers alone
        target.call("fq_follow_dead", "follow dead letters of", kinds=kinds).rows(connection)


def session_type_of(queues: Iterable[HandlerMethods], base: type[S]) -> type[S]:
    """Return the session class that satisfies the annotations of all handlers whose session is a *base*.

    *base* is Session or AsyncSession. If no handler asks for a subclass of *base*, return *base*. If two handlers ask
    for classes of which neither is a subclass of the other, raise InvalidArgument.
    """
    found, taker = base, ""
    for handler in (handler for queue in queues for handler in handlers_of(queue).values()):
        wanted = handler.session_type
        if wanted is None or not issubclass(wanted, base) or issubclass(found, wanted):
            continue
        if not issubclass(wanted, found):
            raise InvalidArgument(
                f"the handler of kind {taker!r} takes a session of {found.__module__}.{found.__qualname__}, the one of "
                f"kind {handler.kind!r} one of {wanted.__module__}.{wanted.__qualname__}; give them one class, or "
                "their queues a worker each"
            )
        found, taker = wanted, handler.kind
    return found


def check_options(
    *, retry: object = None, timeout: object = None, isolation: object = "none", batch: object = None
) -> dict[str, Any]:
    if batch is not None and not isinstance(batch, Batch):
        raise InvalidArgument(f"batch is {batch!r:.80}; give a Batch, such as Batch(max_messages=50)")
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise InvalidArgument(f"retry is {retry!r:.80}; give a RetryPolicy, such as RetryPolicy(max_attempts=5)")
    if isolation not in {"none", "process"}:
        raise InvalidArgument(f"isolation is {isolation!r:.80}; give 'none' or 'process'")
    checked = None if timeout is None else check_duration("timeout", timeout, _LEAST)
    return {"retry": retry, "timeout": checked, "isolated": isolation == "process", "batch": batch}


def _wanted(function: object, known: Mapping[str, LifespanFunction]) -> tuple[set[str], dict[str, str]]:
    """Return which of session and context a function takes, and what :func:`resources_taken` returns for it."""
    if not callable(function):
        raise InvalidArgument(f"handler is {function!r:.80}; give a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(f"handler {function!r:.80} is a generator, which nobody would run; do not yield")
    kinds = inspect.Parameter
    parameters = parameters_of(function)
    if not parameters or parameters[0].kind not in {
        kinds.POSITIONAL_ONLY,
        kinds.POSITIONAL_OR_KEYWORD,
        kinds.VAR_POSITIONAL,
    }:
        raise InvalidArgument(
            f"handler {function!r:.80} takes no delivery; give it one parameter for it, the first"
            + ("" if hasattr(function, "__code__") else _NOT_A_FUNCTION)
        )
    wanted = set()
    resources = resources_taken(function, parameters[1:], known)
    for parameter in parameters[1:]:
        if parameter.name in resources:
            continue
        if parameter.name in {"session", "context"} and parameter.kind is not kinds.POSITIONAL_ONLY:
            wanted.add(parameter.name)
        elif parameter.default is kinds.empty and parameter.kind not in {kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD}:
            raise InvalidArgument(
                f"handler {function!r:.80} takes {parameter.name!r}, which no worker can give; "
                "a handler takes the delivery, 'session', 'context' and the resources of @queue.on_start functions "
                f"declared before it: {', '.join(known) or 'there are none'}; what the payload holds is "
                f"{parameters[0].name}.payload, or the arguments of a function under @queue.job"
            )
    return wanted, resources


def _session_type(function: Callable[..., Any]) -> type | None:
    hints = hints_of(function)
    # The session parameter of a job may have another name; then it has the annotation of a session.
    is_named = any(one.name == "session" for one in parameters_of(function))
    for found in map(class_of, [hints.get("session")] if is_named else hints.values()):
        if found is not None and issubclass(found, (Session, AsyncSession)):
            return found
    return None


def _check_isolated(function: object, wanted: Collection[str], resources: Mapping[str, str] | None) -> None:
    if resources:
        raise InvalidArgument(
            f"handler {function!r:.80} takes the resource {next(iter(resources.values()))!r}, and isolation is "
            "'process': a resource cannot leave its process; make it in the handler itself, or leave isolation out"
        )
    if "session" in wanted:
        raise InvalidArgument(
            f"handler {function!r:.80} takes a session, and isolation is 'process': a session's transaction cannot "
            "leave its process; open a session in the handler itself, or leave isolation out"
        )
    if not inspect.isfunction(function) or is_asynchronous(function):
        raise InvalidArgument(
            f"handler {function!r:.80} is no plain function, and isolation is 'process'; give a function of a module, "
            "which may call asyncio.run itself"
        )
    if "<" in function.__qualname__:
        raise InvalidArgument(
            f"handler {function!r:.80} is {function.__qualname__}, which a child process cannot import; "
            "move it to the top of a module"
        )
