"""Jobs of batches: enqueued one by one, and called with a list."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import pytest
from pydantic import BaseModel
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Batch, Context, InvalidArgument, PayloadError, Queue, Worker
from sqlalchemy_fairqueue.testing import assert_enqueued, perform, refute_enqueued
from tests.fixtures.database import Database
from tests.worker import isolated
from tests.worker.isolated import Text

_BATCH = Batch(max_messages=5)
_INSERT = text("insert into effect values (:message_id)")


def _drain(queue: Queue, engine: Engine) -> None:
    Worker(engine, queue, concurrency=1, housekeeping=False).run(drain=True)


class Model(BaseModel):
    """A model."""

    text: str


class Typed(TypedDict):
    """A dict."""

    text: str


class Tuple(NamedTuple):
    """A tuple."""

    text: str


def test_what_a_message_has(engine: Engine) -> None:
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
        job.enqueue(engine, "a", item)
        job.enqueue(engine, "a", item)
        with Session(engine) as session:
            assert_enqueued(session, job, items=item, count=2)
            assert_enqueued(session, job, payload=payload, count=2)
        _drain(queue, engine)
        found = calls.pop()
        assert (found, {type(one) for one in found}) == ([item, item], {type(item)})
    assert calls == []


@pytest.mark.usefixtures("effects", "forked_children")
@pytest.mark.parametrize("how", ["plain", "session", "async session", "in a child"])
def test_a_call(queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, how: str) -> None:
    """The list has an item for each of the context's deliveries; what is written commits with their completion."""
    worker: Any = Worker(engine, queue, concurrency=1, housekeeping=False)
    if how == "plain":

        @queue.job(kind="embed", batch=_BATCH)
        def embed(context: Context, texts: Sequence[Text]) -> None:
            _bury_bad(context, texts)

        job: Any = embed
    elif how == "session":

        @queue.job(kind="embed", batch=_BATCH)
        def write(context: Context, session: Session, texts: list[Text]) -> None:
            _bury_bad(context, texts)
            session.execute(_INSERT, [{"message_id": one.message_id} for one in context.deliveries])

        job = write
    elif how == "async session":

        @queue.job(kind="embed", batch=_BATCH)
        async def awrite(context: Context, session: AsyncSession, texts: list[Text]) -> None:
            _bury_bad(context, texts)
            await session.execute(_INSERT, [{"message_id": one.message_id} for one in context.deliveries])

        job, worker = awrite, None
    else:
        job = isolated.embed
        worker = Worker(engine, isolated.batch_queue, concurrency=1, housekeeping=False)
    for word in "good", "bad", "good":
        job.enqueue(engine, "a", Text(word))
    if worker is None:
        asyncio.run(AsyncWorker(async_engine, queue, concurrency=1, housekeeping=False).run(drain=True))
    else:
        worker.run(drain=True)
    letters = "select reason, convert_from(content, 'utf8')::json ->> 'text' from fq_dead_letter"
    assert list(map(tuple, database.rows(letters))) == [("bad among 3", "bad")]
    assert database.value("select count(*) from fq_message") == 0
    assert database.value("select count(*) from effect") == (3 if "session" in how else 0)


def _bury_bad(context: Context, texts: Sequence[Text]) -> None:
    for delivery, one in zip(context.deliveries, texts, strict=True):
        if one.text == "bad":
            context.bury(delivery, f"bad among {len(texts)}")


@pytest.mark.parametrize("misfit", [0, 2])
def test_one_that_does_not_fit_joins_none(queue: Queue, engine: Engine, database: Database, misfit: int) -> None:
    """It dies alone, and one with a field that is not known here waits for another worker; the others are handled."""
    calls: list[str] = []

    @queue.job(batch=_BATCH, former=["old"])
    def embed(texts: list[Text]) -> None:
        calls.extend(one.text for one in texts)

    payloads: list[Any] = [{"text": "a", "old": 1}, {"text": "b"}]
    payloads[misfit:misfit] = [{"text": 3}, {"text": "c", "new": 1}]
    for payload in payloads:
        queue.enqueue(engine, channel="a", payload=payload, kind="embed")
    _drain(queue, engine)
    assert calls == ["a", "b"]
    assert "payload at $.text: argument 'texts' of job 'embed' is {'text': 3}: Expected `str`" in str(
        database.value("select reason from fq_dead_letter")
    )
    assert list(map(tuple, database.rows("select convert_from(content, 'utf8'), attempts from fq_message"))) == [
        ('{"text":"c","new":1}', 0)
    ]


def test_a_bad_item(queue: Queue, engine: Engine) -> None:
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
def test_functions_that_take_something_else(queue: Queue, function: Callable[..., None]) -> None:
    """They are refused when they are declared, and so is a batch that is none."""
    with pytest.raises(InvalidArgument, match=r"has batch=, and takes \(.*\) after .*; let it take one list"):
        queue.job(batch=_BATCH)(function)
    with pytest.raises(InvalidArgument, match=r"^batch is 5; give a Batch"):
        queue.job(batch=5)(_plain)  # type: ignore[call-overload]


def test_a_test_performs_it(queue: Queue, engine: Engine) -> None:
    """Perform calls it with a list of one; the assertions know its item."""
    calls: list[list[Text]] = []

    @queue.job(batch=_BATCH)
    def embed(texts: list[Text]) -> None:
        calls.append(texts)

    assert perform(embed, texts=Text("one")) is None
    assert calls == [[Text("one")]]
    with Session(engine) as session:
        refute_enqueued(session, embed)
        embed.enqueue(session, "a", Text("one"))
        assert_enqueued(session, embed, texts=Text("one"), channel="a", count=1)
        refute_enqueued(session, embed, texts=Text("two"))
    assert dataclasses.asdict(calls[0][0]) == {"text": "one", "size": 0}
