"""Typed jobs: declared, called, enqueued, and refused."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Optional
from uuid import UUID  # noqa: TC003 - jobs resolve their annotations

import pydantic
import pytest
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, Enqueue, InvalidArgument, Job, PayloadError, Queue, Recurrence
from sqlalchemy_fairqueue.testing import all_enqueued, assert_enqueued, drain, perform, refute_enqueued, rolled_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sqlalchemy_fairqueue import Context

queue = Queue("documents")
other = Queue("others")


@dataclasses.dataclass
class Page:
    """A dataclass."""

    number: int
    text: str = ""


class Document(pydantic.BaseModel):
    """A model."""

    title: str
    pages: list[Page] = []


class Opaque:
    """Nothing that is known to be converted."""


@queue.job
def parse(context: Context, *, upload: str, pages: int = 1, due: date | None = None) -> str:
    """Parse an upload."""
    return f"{upload} {pages} {due} {context is not None}"


@queue.job(kind="store-it", timeout=timedelta(minutes=1))
async def store(session: Session, document: Document, at: datetime) -> None:
    """Store a document."""


def test_it_is_the_function_too() -> None:
    """Called, it calls the function; it has the function's name and words."""
    assert parse(None, upload="a", pages=2) == "a 2 None False"  # type: ignore[arg-type]
    assert (parse.__name__, parse.__doc__, parse.kind, parse.queue) == ("parse", "Parse an upload.", "parse", queue)


def test_it_is_a_handler() -> None:
    """Its kind is the function's name unless it has another, and it takes what the function takes."""
    found = queue._handlers["parse"]
    assert (found.context, found.session, found.asynchronous, found.timeout) == (True, False, False, None)
    found = queue._handlers["store-it"]
    assert (found.context, found.session, found.asynchronous, found.timeout) == (
        False, True, True, timedelta(minutes=1),
    )  # fmt: skip


def test_what_is_enqueued(engine: Engine) -> None:
    """The payload has the arguments that were given, as plain values; the options are those of an enqueue."""
    with Session(engine) as session:
        first = parse.enqueue(session, channel="a", upload="x.pdf")
        [second] = queue.enqueue_many(session, [parse.options(key="k").prepare("b", upload="y", due=date(2026, 1, 2))])
        session.commit()
    assert (first.outcome, second.outcome) == ("created", "created")
    assert parse.enqueue(engine, channel="c", upload="z").message_id is not None
    found = {one.channel: one.payload for one in queue.dequeue(engine, limit=9)}
    assert found == {"a": {"upload": "x.pdf"}, "b": {"upload": "y", "due": "2026-01-02"}, "c": {"upload": "z"}}


async def test_the_awaited_twin(async_engine: AsyncEngine, engine: Engine) -> None:
    """On an AsyncEngine it is sent at once."""
    await store.enqueue(async_engine, "a", Document(title="t"), datetime(2026, 1, 2, tzinfo=UTC))
    [delivery] = queue.dequeue(engine)
    assert delivery.kind == "store-it"
    assert delivery.payload == {"document": {"title": "t", "pages": []}, "at": "2026-01-02T00:00:00Z"}


def test_options() -> None:
    """They add up, a later one replaces an earlier one, and the job itself is left as it is."""
    second = timedelta(seconds=1)
    once: dict[str, Any] = {"unique_for": second, "unique_from": "completion"}
    late = parse.options(delay=5 * second, key="a").options(key="b", **once)
    assert late.prepare("c", upload="x") == Enqueue(
        channel="c", payload={"upload": "x"}, kind="parse", delay=5 * second, key="b", **once
    )
    assert parse.prepare("c", upload="x").key is None
    with pytest.raises(TypeError, match="argument 'kind'"):
        parse.options(kind="other")  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="message has delay and at"):
        late.options(at=datetime.now(UTC))
    with pytest.raises(InvalidArgument, match="delay"):
        parse.options(delay=7).prepare("c", upload="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, TypeError, r"missing a required( keyword-only)? argument: 'upload'; it takes \(\*, upload: str"),
        ({"upload": "x", "page": 2}, TypeError, r"job 'parse': got an unexpected keyword argument 'page'"),
        ({"upload": "x", "delay": 2}, TypeError, r"'delay'; it takes .*; options of the message go to options\(delay="),
        ({"upload": None}, PayloadError, "'upload' of job 'parse' is None: .*; the key of a new row is None until"),
        ({"upload": 3}, PayloadError, r"\$\.upload: argument 'upload' of job 'parse' is 3: Expected `str`, got `int`"),
        ({"upload": "x", "pages": "two"}, PayloadError, "argument 'pages' of job 'parse' is 'two': Expected `int`"),
        ({"upload": "x", "due": "soon"}, PayloadError, r"\$\.due: argument 'due' of job 'parse' is 'soon': Invalid"),
        ({"upload": Opaque()}, PayloadError, r"argument 'upload' of job 'parse' is <.*Opaque .*>: .* cannot be conv"),
    ],
)
def test_bad_arguments(arguments: Any, error: type[Exception], words: str) -> None:
    """A call that does not fit the function is refused before anything is recorded, and says which argument."""
    with Session() as session, pytest.raises(error, match=words):
        parse.enqueue(session, channel="a", **arguments)


def test_a_bad_value_inside() -> None:
    """The path leads into the argument."""
    with pytest.raises(PayloadError, match=r"^payload at \$\.document: argument 'document' .*: pages\.0\.number: "):
        store.prepare("a", {"title": "t", "pages": [{"number": "x"}]}, datetime.now(UTC))  # type: ignore[arg-type]
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    with pytest.raises(PayloadError, match="'document' of job 'store-it' is"):
        store.prepare("a", holds_itself, datetime.now(UTC))  # type: ignore[arg-type]


_NAMES = [
    *("where", "name", "recurrence", "job", "queue", "payload", "kind", "resources", "count", "args", "kwargs"),
    *("function", "delivery", "message", "wanted"),
]
_CLASHES = inspect.Signature([inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, annotation=str) for one in _NAMES])


def test_arguments_with_names_of_parameters(engine: Engine) -> None:
    """They are the function's, in each method and in the testing kit; a session and a channel stay what they are."""
    clashing = Queue("clashing")
    seen: list[dict[str, str]] = []

    def clash(**given: str) -> None:
        seen.append(given)

    vars(clash)["__signature__"] = _CLASHES
    clash.__annotations__ = dict.fromkeys(_NAMES, str)
    job = clashing.job(kind="clash")(clash)
    given = {name: name.upper() for name in _NAMES}
    with rolled_back(engine) as session:
        job.enqueue(session, channel="a", **given)
        job.enqueue(session.connection(), "a", **given)
        clashing.enqueue_many(session, [job.prepare(channel="a", **given)])
        job.schedule(session, "nightly", Recurrence(every=timedelta(hours=1)), "a", **given)
        with clashing.group(session) as group:
            group.enqueue(job, channel="a", **given)
        assert len(assert_enqueued(session, job, **given)) == 4  # type: ignore[call-overload]
        assert len(all_enqueued(session, job, channel="a", **given)) == 4
        refute_enqueued(session, job, **given | {"count": "other"})
        with pytest.raises(AssertionError):
            assert_enqueued(session, job, count="other")  # type: ignore[call-overload]
        drain(session, clashing)
    assert perform(job, **given) is None  # type: ignore[arg-type]
    assert seen == [given] * 5


class ShopSession(Session):
    """The session of an application."""


def _own_session(db: ShopSession, *, upload: str) -> None: ...


def _session_or_none(db: ShopSession | None, *, upload: str) -> None: ...


def _optional_session(session: Optional[ShopSession] = None, *, upload: str) -> None: ...  # noqa: UP045 - as users write


def _annotated_session(run: Context, db: Annotated[ShopSession, "it"], *, upload: str) -> None: ...


@pytest.mark.parametrize("function", [_own_session, _session_or_none, _optional_session, _annotated_session])
def test_a_session_of_any_class_and_name(function: Callable[..., None]) -> None:
    """It is known by its annotation, also where that is a text; the worker's session is held against its class."""
    made = Queue("documents", check_kinds=False)
    job = made.job(function)
    assert job.prepare("customer-7", upload="a.pdf").payload == {"upload": "a.pdf"}
    handler = made._handlers[job.kind]
    assert (handler.session, handler.session_type) == (True, ShopSession)


def _unannotated(upload) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def _opaque(opaque: list[Opaque]) -> None: ...


def _unresolved(upload: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _generator(upload: str) -> Any:
    yield upload


def _late_session(upload: str, session: Session) -> None: ...


def _keyword_context(*, context: Context, upload: str) -> None: ...


def _channel(channel: str) -> None: ...


def _many(*uploads: str) -> None: ...


def _ambiguous(value: Document | Page) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_unannotated, "'upload' .* has no annotation"),
        (_opaque, "'opaque' .* cannot be converted: .*Opaque.* is no type"),
        (_unresolved, "name 'Missing' is not defined; define what it names before the job"),
        (_generator, "is a generator"),
        (_late_session, "takes 'session' as an argument; context comes first, then session"),
        (_keyword_context, "takes 'context' as an argument"),
        (_channel, "takes 'channel' as an argument"),
        (_many, r"takes .\*uploads"),
        (_ambiguous, "'value' .* cannot be converted: Type unions"),
        (lambda upload: upload, "give a function that has a name"),
    ],
)
def test_what_cannot_be_a_job(function: Any, words: str) -> None:
    """It is refused where it is declared."""
    with pytest.raises(InvalidArgument, match=words):
        other.job(function)
    assert not other._handlers


def test_kinds_and_codecs_that_cannot_be() -> None:
    """A kind has one handler, and a codec for bytes takes no arguments."""
    with pytest.raises(InvalidArgument, match=r"kind 'parse' .* has a handler already"):
        queue.job(kind="parse")(_opaque_free)
    with pytest.raises(InvalidArgument, match="a codec for bytes"):
        Queue("bytes", codec=BytesCodec()).job(_opaque_free)


def _opaque_free(upload: Optional[UUID] = None) -> None: ...  # noqa: UP045 - it is one of the ways


def test_pickled_by_name() -> None:
    """As a function it can be sent to a process that imports its module."""
    copied: Job[Any, Any, Any] = pickle.loads(pickle.dumps(parse))  # noqa: S301 - our own
    assert copied is parse
