"""Typed jobs in workers: arguments come back, payloads that do not fit, old and new signatures, lists of batches."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Batch, Context, Delivery, InvalidArgument, PayloadError, Queue
from sqlalchemy_fairqueue.testing import assert_enqueued, perform, refute_enqueued
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker import isolated
from tests.worker.conftest import MakeWorker
from tests.worker.helpers import LATER, count_effects, drained, is_empty, send, write_effect
from tests.worker.isolated import Text


@pytest.mark.usefixtures("effects")
def test_a_job(queue: Queue, engine: Engine, database: Database, drain: MakeWorker) -> None:
    """It gets its context, its session and its arguments, and its writes are committed with the completion."""
    found = []

    @queue.job
    def pay(context: Context, session: Session, *, order: UUID, amount: Decimal = Decimal(1)) -> None:
        write_effect(session, context.delivery)
        found.append((order, amount, context.delivery.channel))

    order = uuid4()
    pay.enqueue(engine, "a", order=order, amount=Decimal("9.90"))
    pay.enqueue(engine, "b", order=order)
    assert drain(queue).stats.completed == 2
    assert sorted(found) == [(order, Decimal(1), "b"), (order, Decimal("9.90"), "a")]
    assert count_effects(database) == 2


def test_handlers_beside_jobs(queue: Queue, engine: Engine) -> None:
    """One worker serves both, and a job can be enqueued by its kind and a plain payload, too."""
    found: list[Any] = []

    @queue.job
    def parse(upload: str) -> None:
        found.append(upload)

    @queue.handler("call")
    def call(delivery: Delivery) -> None:
        found.append(delivery.payload)

    parse.enqueue(engine, "a", upload="typed")
    send(engine, queue, {"upload": "plain"}, kind="parse")
    send(engine, queue, [1], kind="call")
    drained(engine, queue)
    assert sorted(found, key=str) == [[1], "plain", "typed"]


_UNFIT: list[tuple[object, str]] = [
    ({}, "Object missing required field `upload`"),
    ({"upload": 3}, "payload at $.upload: argument 'upload' of job 'parse' is 3: Expected `str`, got `int`"),
    ({"upload": "a", "due": {"days": "x"}}, "payload at $.due: argument 'due' of job 'parse' is {'days': 'x'}"),
    ([1], "job 'parse' takes (upload: str, due:"),
    (None, "Expected `object`, got `null`"),
]


def test_a_payload_that_does_not_fit(queue: Queue, engine: Engine) -> None:
    """It is a dead letter at the first attempt, which says what does not fit; nothing of the application is called."""
    called: list[object] = []

    @queue.middleware
    def note(context: Context, proceed: Callable[[], Any]) -> Any:
        called.append(context)
        return proceed()

    @queue.job
    def parse(upload: str, due: timedelta | None = None) -> None:
        called.append((upload, due))

    sent = send(engine, queue, *(payload for payload, _ in _UNFIT), kind="parse")
    drained(engine, queue)
    dead = {letter.message_id: letter for letter in queue.dead_letters.list(engine)}
    assert called == []
    for message_id, (_, words) in zip(sent, _UNFIT, strict=True):
        assert dead[message_id].attempts == 1
        assert words in (dead[message_id].reason or "")


def test_payloads_of_other_versions(engine: Engine, clock: Clock) -> None:
    """A new argument with a default, and one that is given up, keep messages of the old function alive.

    A worker that does not know an argument leaves the message uncounted to those that do.
    """
    old, new, found = Queue("documents"), Queue("documents"), list[Any]()

    @old.job(kind="parse")
    def parse_of_old(upload: str, color: str) -> None:
        found.append((upload, color))

    @new.job(kind="parse", former=["color"])
    def parse_of_new(context: Context, upload: str, pages: int = 7) -> None:
        found.append((upload, pages, context.delivery.attempt))

    parse_of_old.enqueue(engine, "a", "x", color="red")
    drained(engine, new)
    assert found == [("x", 7, 1)]
    parse_of_new.enqueue(engine, "a", "y", pages=3)
    assert drained(engine, old, retry=LATER).stats.released == 1
    assert len(found) == 1
    clock.advance(timedelta(hours=1))
    drained(engine, new)
    assert found[1:] == [("y", 3, 1)]


_BATCH = Batch(max_messages=5)


class Model(BaseModel):
    """A model."""

    text: str


class Typed(TypedDict):
    """A dict."""

    text: str


class Tuple(NamedTuple):
    """A tuple."""

    text: str


def test_what_a_message_of_a_batch_has(engine: Engine) -> None:
    """Its payload is the plain value of what its enqueue is given, and the function gets a list of these."""
    calls: list[Any] = []
    for annotation, item, payload in (
        (str, "one", "one"),
        (list[str], ["one"], ["one"]),
        (Text, Text("one"), {"text": "one", "size": 0}),
        (Model, Model(text="one"), {"text": "one"}),
        (Typed, Typed(text="one"), {"text": "one"}),
        (Tuple, Tuple("one"), ["one"]),
    ):

        def embed(items: list[Any]) -> None:
            calls.append(items)

        embed.__annotations__["items"] = list[annotation]  # type: ignore[valid-type]
        queue = Queue(f"{annotation}")
        job: Any = queue.job(batch=_BATCH)(embed)
        with Session(engine) as session:
            refute_enqueued(session, job)
            for _ in range(2):
                job.enqueue(session, "a", item)
            assert_enqueued(session, job, items=item, channel="a", count=2)
            assert_enqueued(session, job, payload=payload, count=2)
            session.commit()
        assert perform(job, items=item) is None
        drained(engine, queue, concurrency=1)
        for items, count in zip(calls, (1, 2), strict=True):
            assert (items, {type(one) for one in items}) == ([item] * count, {type(item)})
        calls.clear()


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("how", ["session", "async session", "in a child"])
async def test_a_call_of_a_batch(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, how: str
) -> None:
    """The list has an item for each of the context's deliveries, wherever it is called."""

    @queue.job(kind="session", batch=_BATCH)
    def embed(context: Context, session: Session, texts: Sequence[Text]) -> None:
        session.connection()
        isolated.bury_bad(context, texts)

    @queue.job(kind="async session", batch=_BATCH)
    async def aembed(context: Context, session: AsyncSession, texts: list[Text]) -> None:
        await session.run_sync(Session.connection)
        isolated.bury_bad(context, texts)

    job: Any = {"session": embed, "async session": aembed, "in a child": isolated.embed}[how]
    for word in "good", "bad", "good":
        job.enqueue(engine, "a", Text(word))
    sessions = sessionmaker(engine)
    worker = AsyncWorker(async_engine, job.queue, concurrency=1, sync_session_factory=sessions, housekeeping=False)
    await worker.run(drain=True)
    [letter] = queue.dead_letters.list(engine)
    assert (letter.reason, letter.payload["text"], is_empty(database)) == ("bad among 3", "bad", True)


@pytest.mark.parametrize("misfit", [0, 2])
def test_one_that_does_not_fit_joins_no_batch(queue: Queue, engine: Engine, database: Database, misfit: int) -> None:
    """It dies alone, and one with a field that is not known here waits for another worker; the others are handled."""
    calls: list[str] = []

    @queue.job(batch=_BATCH, former=["old"])
    def embed(texts: list[Text]) -> None:
        calls.extend(one.text for one in texts)

    payloads: list[Any] = [{"text": "a", "old": 1}, {"text": "b"}]
    payloads[misfit:misfit] = [{"text": 3}, {"text": "c", "new": 1}]
    for payload in payloads:
        queue.enqueue(engine, channel="a", payload=payload, kind="embed")
    drained(engine, queue, concurrency=1)
    assert calls == ["a", "b"]
    assert "payload at $.text: argument 'texts' of job 'embed' is {'text': 3}: Expected `str`" in str(
        database.value("select reason from fq_dead_letter")
    )
    assert list(map(tuple, database.rows("select convert_from(content, 'utf8'), attempts from fq_message"))) == [
        ('{"text":"c","new":1}', 0)
    ]


def test_a_bad_item_of_a_batch(queue: Queue, engine: Engine) -> None:
    """It is refused by the enqueue, which says what is wrong in it."""

    @queue.job(batch=_BATCH)
    def embed(texts: list[Text]) -> None: ...

    with pytest.raises(
        PayloadError, match=r"payload at \$\.size: argument 'texts' of job 'embed' is .*: Expected `int`"
    ):
        embed.enqueue(engine, "a", Text("one", size="large"))  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match=r"payload at \$: argument 'texts' of job 'embed' is \[\]"):
        embed.enqueue(engine, "a", [])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"job 'embed': missing a required .*argument: 'texts'"):
        embed.enqueue(engine, "a")  # type: ignore[call-overload]


def _keywords(*, texts: list[str]) -> None: ...


def _two(texts: list[str], language: str) -> None: ...


def _plain(text: str) -> None: ...


def _bare(texts: list) -> None: ...  # type: ignore[type-arg]


def _nothing(context: Context) -> None: ...


@pytest.mark.parametrize("function", [_keywords, _two, _plain, _bare, _nothing])
def test_functions_that_take_no_batch(queue: Queue, function: Callable[..., None]) -> None:
    """They are refused when they are declared, and so is a batch that is none."""
    with pytest.raises(InvalidArgument, match=r"has batch=, and takes \(.*\) after .*; let it take one list"):
        queue.job(batch=_BATCH)(function)
    with pytest.raises(InvalidArgument, match=r"^batch is 5; give a Batch"):
        queue.job(batch=5)(_plain)  # type: ignore[call-overload]
