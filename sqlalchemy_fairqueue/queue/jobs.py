"""Typed jobs: a function defines the kind, the payload, the handler, and the methods that enqueue its calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.codecs import BytesCodec
from sqlalchemy_fairqueue.database.asynchronous import AsyncSession
from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.queue.base import AsyncWhere, RecordedWhere, Where, recorded
from sqlalchemy_fairqueue.queue.contexts import Context
from sqlalchemy_fairqueue.queue.handlers import HandlerOptions, JobOptions, check_options
from sqlalchemy_fairqueue.queue.results import ResultMethods, ResultOptions, ResultQuestion
from sqlalchemy_fairqueue.queue.schedules import ScheduleMethods, Schedules
from sqlalchemy_fairqueue.queue.signatures import class_of, hints_of, parameters_of
from sqlalchemy_fairqueue.values.checks import check_message_id, check_name
from sqlalchemy_fairqueue.values.messages import Batch, Delivery, Enqueue, EnqueueOptions, Receipt
from sqlalchemy_fairqueue.values.outcomes import Bury
from sqlalchemy_fairqueue.values.schedules import Recurrence

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.queue.payloads import PayloadSchema

C = ParamSpec("C")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
S = TypeVar("S", bound=Session | AsyncSession)
_KINDS = inspect.Parameter
_RESERVED = ("self", "session", "context", "channel")


class Job(Generic[C, P, R_co]):
    """A function that is enqueued with its arguments and called with them by a worker. ``Queue.job`` makes it.

    Calling the job calls the function here and now; nothing is enqueued.

    Example:
        >>> @queue.job
        ... def parse(context: Context, *, file: str) -> None: ...
        >>> with Session(engine) as session, session.begin():
        ...     receipt = parse.enqueue(session, "customer-7", file="a.pdf")
        >>> later = parse.options(delay=timedelta(hours=1))
        >>> files = [later.prepare("customer-7", file=name) for name in ("b.pdf", "c.pdf")]
        >>> receipts = queue.enqueue_many(engine, files)
        >>> parse.schedule(engine, "hourly", Recurrence(every=timedelta(hours=1)), "customer-7", file="all.pdf")
    """

    __name__: str

    def __init__(self, queue: JobMethods, kind: str, function: Callable[C, R_co], schema: PayloadSchema) -> None:
        functools.update_wrapper(self, function)
        self.queue = queue
        self.kind = kind
        self.function = function
        self.schema = schema
        self._options: EnqueueOptions = {}

    def __call__(self, /, *args: C.args, **kwargs: C.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.kind!r} of {self.queue!r}>"

    def __reduce__(self) -> Any:
        # By its name, as functions are pickled; a child process imports it.
        return getattr(self, "__qualname__", self.kind)

    def on_dead(self, function: F, /) -> F:
        """Declare the function that handles dead letters of this job, as ``Queue.on_dead`` does. Use it as a decorator.

        Example:
            >>> @queue.job
            ... def parse(context: Context, *, file: str) -> None: ...
            >>> @parse.on_dead
            ... def tell(delivery: Delivery) -> None:
            ...     print(delivery.channel, delivery.payload["reason"])
        """
        return self.queue.on_dead(self.kind)(function)

    def options(self, **options: Unpack[EnqueueOptions]) -> Job[C, P, R_co]:
        """Return a copy of the job that enqueues with these options: ``parse.options(delay=...).enqueue(...)``.

        The options are those of ``Queue.enqueue``. A value replaces an earlier one; an unknown option raises TypeError.
        """
        job: Job[C, P, R_co] = Job(self.queue, self.kind, self.function, self.schema)
        job._options = {**self._options, **options}
        # Check now, so that an error points at the line with the bad option, and not at an enqueue.
        Enqueue(channel="any", payload=None, kind=self.kind, **job._options)
        return job

    def prepare(self, /, channel: str, *args: P.args, **kwargs: P.kwargs) -> Enqueue:
        """Return the message for a call, for ``Queue.enqueue_many``.

        The arguments are those of the job without context and session. They are converted immediately. The payload has
        only the given arguments; a worker fills in the defaults of its version of the function. A missing or unknown
        argument raises TypeError. A value that the annotation does not allow raises PayloadError.
        """
        return Enqueue(channel=channel, payload=self.schema.encode(args, kwargs), kind=self.kind, **self._options)

    @recorded
    def enqueue(self, where: RecordedWhere, /, channel: str, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Enqueue a call. Arguments and errors are those of :meth:`prepare` and ``Queue.enqueue``."""
        payload = self.schema.encode(args, kwargs)
        return self.queue.enqueue(where, channel=channel, payload=payload, kind=self.kind, **self._options)

    @recorded
    def schedule(
        self,
        where: RecordedWhere,
        name: str,
        recurrence: Recurrence,
        /,
        channel: str,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Enqueue a call again and again. Arguments and errors are those of :meth:`prepare` and ``schedules.set``."""
        _check_recurrence(recurrence)
        call = self.prepare(channel, *args, **kwargs)
        return Schedules(self.queue).set(where, name, job=call, **recurrence.words())

    @overload
    def result(
        self: Job[C, P, Coroutine[Any, Any, T]], where: Where, message_id: int | None, **how: Unpack[ResultOptions]
    ) -> T: ...
    @overload
    def result(self, where: Where, message_id: int | None, **how: Unpack[ResultOptions]) -> R_co: ...
    @overload
    def result(
        self: Job[C, P, Coroutine[Any, Any, T]], where: AsyncWhere, message_id: int | None, **how: Unpack[ResultOptions]
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def result(
        self, where: AsyncWhere, message_id: int | None, **how: Unpack[ResultOptions]
    ) -> Coroutine[Any, Any, R_co]: ...
    def result(self, where: Any, message_id: int | None, **how: Unpack[ResultOptions]) -> Any:
        """Return what the function returned for a call, as the annotated type.

        Arguments and errors are those of ``Queue.result``. A message of another job raises InvalidArgument.

        Example:
            >>> queue.configure(engine, result_retention=timedelta(hours=1))
            >>> @queue.job
            ... def count(context: Context, *, text: str) -> int:
            ...     return len(text.split())
            >>> message_id = count.enqueue(engine, "customer-7", text="three short words").message_id
            >>> Worker(engine, queue, concurrency=1).run(drain=True)
            >>> count.result(engine, message_id)
            3
        """
        asked = ResultQuestion(check_message_id(message_id), kind=self.kind, **how)
        return self.queue._result(where, asked)  # noqa: SLF001 - a part of it


class JobHandler:
    """The handler of a job: calls the function with the arguments in the payload."""

    def __init__(self, job: Job[..., ..., Any], leading: tuple[str, ...]) -> None:
        functools.update_wrapper(self, job.function)
        self._job = job
        self._leading = leading

    def __call__(self, deliveries: Delivery | list[Delivery], **given: Any) -> Any:
        leading = [given[name] for name in self._leading]
        if isinstance(deliveries, list):
            return self._job.function(*leading, [self._arguments(delivery) for delivery in deliveries])
        return self._job.function(*leading, **self._arguments(deliveries))

    def _arguments(self, delivery: Delivery) -> Any:
        schema = self._job.schema
        try:
            schema.check_known(delivery.payload)
            return schema.decode(delivery.payload)
        except PayloadError as error:
            raise Bury(str(error)) from error

    def __repr__(self) -> str:
        return f"<handler of job {self._job.function.__module__}.{self._job.function.__qualname__}>"

    def __reduce__(self) -> Any:
        return JobHandler, (self._job, self._leading)


class _Declare:
    def __init__(self, declare: Callable[[Callable[..., Any]], Job[..., ..., Any]]) -> None:
        self._declare = declare

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, S, P], R], /
    ) -> Job[Concatenate[Context, S, P], P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Job[Concatenate[Context, P], P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, P], R], /) -> Job[Concatenate[S, P], P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._declare(function)


class _DeclareBatch(_Declare):
    """The decorator from ``Queue.job(batch=...)``: the decorated function takes a list, ``enqueue`` takes one item."""

    @overload  # type: ignore[override]
    def __call__(self, function: Callable[[Context, S, list[T]], Any], /) -> Job[[Context, S, list[T]], [T], Any]: ...
    @overload
    def __call__(self, function: Callable[[Context, list[T]], Any], /) -> Job[[Context, list[T]], [T], Any]: ...
    @overload
    def __call__(self, function: Callable[[S, list[T]], Any], /) -> Job[[S, list[T]], [T], Any]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Any], /) -> Job[[list[T]], [T], Any]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._declare(function)


class JobMethods(ScheduleMethods, ResultMethods):
    """Typed jobs of a queue."""

    @overload
    def job(self, function: Callable[Concatenate[Context, S, P], R], /) -> Job[Concatenate[Context, S, P], P, R]: ...
    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> Job[Concatenate[Context, P], P, R]: ...
    @overload
    def job(self, function: Callable[Concatenate[S, P], R], /) -> Job[Concatenate[S, P], P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, P, R]: ...
    @overload
    def job(
        self,
        /,
        *,
        kind: str | None = None,
        batch: None = None,
        former: Iterable[str] = (),
        **options: Unpack[JobOptions],
    ) -> _Declare: ...
    @overload
    def job(
        self, /, *, batch: Batch, kind: str | None = None, former: Iterable[str] = (), **options: Unpack[JobOptions]
    ) -> _DeclareBatch: ...
    def job(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        kind: str | None = None,
        former: Iterable[str] = (),
        **options: Unpack[HandlerOptions],
    ) -> Any:
        """Make a typed job of a function: ``@queue.job`` or ``@queue.job(timeout=...)``.

        The function may take ``context`` first, then ``session``, as :meth:`handler` says. Both may have other names if
        they are annotated with Context, and with Session, AsyncSession or a subclass.

        All other parameters are the arguments in the payload. They need annotations: plain values, dataclasses,
        TypedDicts, msgspec structs, pydantic models, enums, UUID, datetime, date, time, timedelta, Decimal, bytes, and
        containers and unions of them. Type checkers know these types; ``enqueue`` checks the values.

        A worker calls the function with the same arguments. Arguments missing from the payload get the function's
        defaults. If an argument without a default is missing, or a value does not fit its annotation, the message is
        dead at once, with a reason that names the argument. If a worker does not know the kind or an argument, it
        releases the message up to 15 times, since other workers may know it; after that the attempts fail.

        Args:
            kind: The kind of its messages. Default: the function's name.
            options: retry, timeout, isolation and batch, as for :meth:`handler`.
            batch: After context and session the function takes one list, such as ``texts: list[Text]``, with an item
                for each of ``context.deliveries``. Each ``enqueue`` takes one item, whose plain value is the payload:
                ``embed.enqueue(session, "customer-7", Text("one"))``.
            former: Names of arguments, or of fields of an item, that older versions had. They are ignored in payloads.

        Example:
            >>> @queue.job(retry=RetryPolicy(max_attempts=5))
            ... def parse(context: Context, session: Session, *, file: str, pages: int = 1) -> None:
            ...     print(file, pages)
            >>> receipt = parse.enqueue(engine, channel="customer-7", file="a.pdf", pages=3)
            >>> Worker(engine, queue, concurrency=1).run(drain=True)
            a.pdf 3
        """
        checked = check_options(**options)

        def declare(function: Callable[..., Any]) -> Job[..., ..., Any]:
            # Imported here, since that takes long, and not every application has jobs.
            from sqlalchemy_fairqueue.queue.payloads import ItemSchema, PayloadSchema  # noqa: PLC0415

            own = kind if kind is not None else _name(function)
            check_name("kind", own)
            if isinstance(self.codec, BytesCodec):
                raise InvalidArgument(f"job {own!r} has arguments, and {self!r} a codec for bytes; use another queue")
            leading, parameters = _parameters(own, function)
            kind_of_schema = ItemSchema if checked["batch"] else PayloadSchema
            schema = kind_of_schema(own, function, parameters, former)
            job: Job[..., ..., Any] = Job(self, own, function, schema)
            self._declare(own, JobHandler(job, leading), checked, wanted=leading, written=function, schema=schema)
            return job

        return _Declare(declare) if function is None else declare(function)


def _check_recurrence(recurrence: object) -> None:
    if not isinstance(recurrence, Recurrence):
        example = f"cron={recurrence!r:.40}" if isinstance(recurrence, str) else "cron='0 3 * * *'"
        raise InvalidArgument(f"recurrence is {recurrence!r:.80}; give a Recurrence, such as Recurrence({example})")


def _name(function: object) -> str:
    name = getattr(function, "__name__", None)
    if not inspect.isroutine(function) or not isinstance(name, str) or name == "<lambda>":
        raise InvalidArgument(f"job is {function!r:.80}; give a function that has a name")
    return name


def _parameters(kind: str, function: Callable[..., Any]) -> tuple[tuple[str, ...], list[inspect.Parameter]]:
    """Return which of "context" and "session" a function takes, in this order, and its other parameters."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(f"job {kind!r} is a generator, which nobody would run; do not yield")
    parameters, hints = parameters_of(function), hints_of(function)
    leading: list[str] = []
    for name in ("context", "session"):
        first = parameters[0] if parameters else None
        if first is not None and first.kind is not _KINDS.KEYWORD_ONLY and _is_given(first, name, hints):
            leading.append(name)
            parameters.pop(0)
    for one in parameters:
        if one.name in _RESERVED:
            raise InvalidArgument(
                f"job {kind!r} takes {one.name!r} as an argument; context comes first, then session, neither after a "
                "*, and no argument of the payload may have one of the names " + ", ".join(map(repr, _RESERVED))
            )
        if hints.get(one.name) is Delivery:
            raise InvalidArgument(
                f"job {kind!r} takes the delivery as {one.name!r}, and a job takes the arguments of its payload; take "
                "'context: Context' first, which has context.delivery, or make a handler: @queue.handler"
            )
        if one.kind in {_KINDS.POSITIONAL_ONLY, _KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD}:
            raise InvalidArgument(f"job {kind!r} takes {str(one)!r}; give each argument of the payload a name")
    return tuple(leading), parameters


def _is_given(parameter: inspect.Parameter, name: str, hints: Mapping[str, Any]) -> bool:
    classes = (Context,) if name == "context" else (Session, AsyncSession)
    annotation = hints.get(parameter.name, parameter.annotation)
    if isinstance(annotation, str):
        # Only type checkers know the annotation.
        is_annotated = annotation.rpartition(".")[2] in {one.__name__ for one in classes}
    else:
        found = class_of(annotation)
        is_annotated = found is not None and issubclass(found, classes)
    return is_annotated or parameter.name == name
