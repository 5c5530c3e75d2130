"""A wrong argument is refused by a typed error that names it, before anything is recorded or sent."""

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Enqueue, InvalidArgument, JsonCodec, Queue
from sqlalchemy_fairqueue.values import EnqueueWords
from tests.fixtures.database import Database

_OTHER: Any = object()
_ODD: Any = {1: 2}
_LIST: Any = [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "queue name '' has 0 bytes"),
        ({"name": "x" * 513}, "has 513 bytes of UTF-8; use 1 to 512"),
        ({"name": "x" * 10_240}, "x...x"),
        ({"name": "x" * 10_240}, "xxx' has 10240 bytes"),
        ({"name": "a\x00"}, "NUL"),
        ({"name": "\ud800"}, "lone surrogate"),
        ({"name": None}, "queue name is None; give a str"),
        ({"schema": ""}, "schema '' has 0 bytes"),
        ({"schema": "x" * 64}, "has 64 bytes of UTF-8; use 1 to 63"),
        ({"schema": 7}, "schema is 7"),
        ({"codec": JsonCodec}, "codec is <class"),
        ({"codec": "json"}, "codec is 'json'; give an object with encode"),
        ({"defaults": 3}, "defaults is 3; give a ChannelPolicy"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"max_attempts": None}, "max_attempts is None"),
    ],
)
def test_queues(arguments: dict[str, Any], message: str) -> None:
    """A queue that could not work is not made."""
    with pytest.raises(InvalidArgument) as caught:
        Queue(**dict[str, Any](name="documents") | arguments)
    assert message in str(caught.value)


Call = Callable[[Queue, Any, Delivery], object]
_RECORDING: list[tuple[Call, str]] = [
    (lambda queue, where, _: queue.enqueue(where, channel="", payload=1), "channel ''"),
    (lambda queue, where, _: queue.enqueue(where, channel="a", payload=object()), "payload at $: a object"),
    (lambda queue, where, _: queue.enqueue(where, channel="a", payload=1, headers=_OTHER), "headers is <object"),
    (lambda queue, where, _: queue.enqueue(where, channel="a", payload=1, headers=_LIST), "headers is [1]"),
    (lambda queue, where, _: queue.enqueue(where, channel="a", payload=1, headers=_ODD), "headers at $: the key 1"),
    (lambda queue, where, _: queue.enqueue(where, channel="a", payload=1, headers={"a": [b""]}), "headers at $.a[0]"),
    (
        lambda queue, where, _: queue.enqueue(where, channel="a", payload=1, headers={"t": timedelta()}),
        "headers at $.t: a timedelta cannot be encoded as JSON, and headers do not go through the queue's codec",
    ),
    (lambda queue, where, _: queue.enqueue_many(where, _OTHER), "messages is <object"),
    (lambda queue, where, _: queue.enqueue_many(where, [7]), "messages has 7 where an Enqueue"),  # type: ignore[list-item]
    (lambda queue, where, _: queue.complete(where, _OTHER), "deliveries is <object"),
    (lambda queue, where, _: queue.complete(where, [7]), "deliveries has 7 where a Delivery"),  # type: ignore[list-item]
    (lambda _, where, one: Queue("other").complete(where, one), "was delivered by queue 'documents', this is 'other'"),
    (lambda queue, where, one: queue.retry(where, one, delay=timedelta(-1)), "delay is datetime.timedelta(days=-1)"),
    (lambda queue, where, one: queue.retry(where, one, error=_OTHER), "error is <object"),
    (lambda queue, where, one: queue.release(where, one, delay=5), "delay is 5"),  # type: ignore[arg-type]
    (lambda queue, where, one: queue.bury(where, one, reason=b"x"), "reason is b'x'; give a str"),  # type: ignore[arg-type]
    (lambda queue, where, _: queue.cancel(where, 0), "message_id is 0"),
    (lambda queue, where, _: queue.cancel(where, 2**63), "message_id is 9223372036854775808"),
    (lambda queue, where, _: queue.cancel(where, None), "message_id is None"),
    (lambda queue, where, _: queue.configure(where, defaults=_OTHER), "defaults is <object"),
    (lambda queue, where, _: queue.configure_channel(where, "", ChannelPolicy()), "channel ''"),
    (lambda queue, where, _: queue.configure_channel(where, "a", _OTHER), "policy is <object"),
]


def test_on_every_session(queue: Queue, engine: Engine, database: Database) -> None:
    """Each wrong argument names itself, and the session commits what it had recorded besides, and nothing more."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        session.commit()
        [delivery] = queue.dequeue(engine)
        queue.enqueue(session, channel="kept", payload=1)
        for call, message in _RECORDING:
            for where in (session, engine) if "enqueue" not in call.__code__.co_names[0] else (session,):
                with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
                    call(queue, where, delivery)
                assert message in str(caught.value)
        session.commit()
    assert database.value("select count(*) from fq_message") == 2
    assert database.value("select count(*) from fq_channel") == 2


@pytest.mark.parametrize("wrong", [None, 7, "postgresql://", object, sessionmaker(), Session], ids=repr)
def test_no_place_at_all(queue: Queue, engine: Engine, wrong: Any) -> None:
    """What is no session, connection or engine is refused by its kind."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        session.commit()
    [delivery] = queue.dequeue(engine)
    for call in (
        lambda: queue.enqueue(wrong, channel="a", payload=1),
        lambda: queue.enqueue_now(wrong, channel="a", payload=1),
        lambda: queue.dequeue(wrong),
        lambda: queue.complete(wrong, delivery),
        lambda: queue.extend(wrong, delivery),
        lambda: queue.cancel(wrong, 1),
        lambda: queue.configure(wrong, defaults=ChannelPolicy()),
    ):
        kind = f"the class {wrong.__name__}" if isinstance(wrong, type) else f"an? {type(wrong).__name__}"
        with pytest.raises(InvalidArgument, match=f"got {kind} where"):
            call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": 0}, "limit is 0; give an int from 1 to 100000"),
        ({"limit": 100_001}, "limit is 100001"),
        ({"limit": True}, "limit is True"),
        ({"limit": "5"}, "limit is '5'"),
        ({"lease": 30}, "lease is 30; give a timedelta"),
        ({"lease": timedelta()}, "lease is datetime.timedelta(0)"),
        ({"lease": timedelta(-1)}, "lease is"),
        ({"lease": timedelta(366)}, "lease is"),
    ],
)
async def test_dequeue(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, arguments: dict[str, Any], message: str
) -> None:
    """Both dequeue and its twin refuse the same limits and leases."""
    with pytest.raises(InvalidArgument) as caught:
        queue.dequeue(engine, **arguments)
    assert message in str(caught.value)
    with pytest.raises(InvalidArgument) as caught:
        await queue.adequeue(async_engine, **arguments)
    assert message in str(caught.value)


def test_dequeue_wants_an_engine(queue: Queue, engine: Engine) -> None:
    """A session, even scoped, or a connection is told why dequeue needs a transaction of its own."""
    with Session(engine) as session, engine.connect() as connection:
        for where in (session, scoped_session(sessionmaker(engine)), connection):
            with pytest.raises(InvalidArgument, match=r"must be committed before the work begins.*; give an Engine"):
                queue.dequeue(where)  # type: ignore[arg-type]


def test_extend_needs_a_delivery(queue: Queue, engine: Engine) -> None:
    """Extending nothing is refused, where completing nothing is nothing."""
    with pytest.raises(InvalidArgument, match="no lease to extend"):
        queue.extend(engine, [])
    queue.complete(engine, [])
    with Session(engine) as session:
        queue.complete(session, [])
        queue.enqueue_many(session, [])
        assert not session.in_transaction()


async def test_sync_calls_with_async_targets(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A sync call that is given an async engine or connection points to the awaited twin."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        session.commit()
    [delivery] = queue.dequeue(engine)
    async with async_engine.connect() as connection, AsyncSession(async_engine) as session:
        wrong: Any
        for wrong in (async_engine, connection):
            for call in (
                partial(queue.complete, wrong, delivery),
                partial(queue.cancel, wrong, 1),
                partial(queue.extend, wrong, delivery),
            ):
                with pytest.raises(InvalidArgument, match=r"await|needed"):
                    call()
        with pytest.raises(InvalidArgument, match="await"):
            queue.dequeue(async_engine)  # type: ignore[arg-type]
        scoped = async_scoped_session(async_sessionmaker(async_engine), lambda: 1)
        for wrong in (session, scoped, connection, async_engine):
            with pytest.raises(InvalidArgument, match=r"await queue\.aenqueue_now"):
                queue.enqueue_now(wrong, channel="a", payload=1)
        for wrong in (connection, async_engine):
            with pytest.raises(InvalidArgument, match="session of your transaction, or await aenqueue_now"):
                queue.enqueue(wrong, channel="a", payload=1)
            with pytest.raises(InvalidArgument, match=r"await queue\.aenqueue_many"):
                queue.enqueue_many(wrong, [Enqueue(channel="a", payload=1)])
    with engine.connect() as plain:
        for wrong in (plain, engine):
            with pytest.raises(InvalidArgument, match="session of your transaction, or use enqueue_now"):
                queue.enqueue(wrong, channel="a", payload=1)


async def test_async_calls_with_sync_targets(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An awaited call that is given a sync engine, or any session, points to the plain one."""
    with Session(engine) as plain:
        queue.enqueue(plain, channel="a", payload=1)
        plain.commit()
    [delivery] = queue.dequeue(engine)
    wrong: Any
    async with AsyncSession(async_engine) as session:
        for wrong in (engine, session, Session(engine)):
            for call in (
                partial(queue.acomplete, wrong, delivery),
                partial(queue.acancel, wrong, 1),
                partial(queue.aconfigure, wrong, defaults=ChannelPolicy()),
                partial(queue.aenqueue_many, wrong, [Enqueue(channel="a", payload=1)]),
            ):
                with pytest.raises(InvalidArgument, match="without the 'a' in front"):
                    await call()
    for wrong in (engine, Session(engine)):
        with pytest.raises(InvalidArgument):
            await queue.adequeue(wrong)
        with pytest.raises(InvalidArgument):
            await queue.aextend(wrong, delivery)
        with pytest.raises(InvalidArgument, match="an AsyncSession, an AsyncConnection or an AsyncEngine"):
            await queue.aenqueue_now(wrong, channel="a", payload=1)


async def test_unknown_arguments(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A name that no call has, or a missing one, is a TypeError that names it; a type checker knows it before."""
    with Session(engine) as session:
        with pytest.raises(TypeError, match="chanel"):
            queue.enqueue_now(session, chanel="a", payload=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="payload"):
            queue.enqueue_now(session, channel="a")  # type: ignore[call-arg]
        assert not session.in_transaction()
    with pytest.raises(TypeError, match="chanel"):
        await queue.aenqueue_now(async_engine, chanel="a", payload=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nmae"):
        Queue(nmae="documents")  # type: ignore[call-arg]


def test_every_call_takes_the_same_message() -> None:
    """What enqueue takes is what an Enqueue says, and what enqueue_now and aenqueue_now are typed with."""
    words = [field.name for field in fields(Enqueue)]
    assert EnqueueWords.__annotations__.keys() == set(words)
    assert list(signature(Queue.enqueue).parameters) == ["self", "session", *words]
    annotations = {name: str(annotation) for name, annotation in Enqueue.__annotations__.items()}
    given = {name: parameter.annotation for name, parameter in signature(Queue.enqueue).parameters.items()}
    assert {name: given[name] for name in words} == annotations


def test_a_queue_shows_what_it_takes() -> None:
    """The parameters of a queue can be seen, whichever part of its face is made first."""
    assert list(signature(Queue).parameters) == [
        "name",
        "schema",
        "codec",
        "defaults",
        "max_attempts",
        "bind_arguments",
        "notify",
        "check_kinds",
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda queue, where: queue.enqueue(where, "a", {"x": 1}),
            "enqueue has 'a', {'x': 1} without a name; write enqueue(session, channel='a', payload={'x': 1})",
        ),
        (
            lambda queue, where: queue.enqueue(where, "a", payload=1),
            "enqueue has 'a' without a name; write enqueue(session, channel='a')",
        ),
        (
            lambda queue, where: queue.enqueue(where, channel="a", payload=1, prioritty=3),
            "enqueue has prioritty=3, which is none of its arguments; write priority=3",
        ),
        (
            lambda queue, where: queue.enqueue_now(where, "a", {"x": 1}),
            "enqueue_now has 'a', {'x': 1} without a name; write enqueue_now(where, channel='a', payload={'x': 1})",
        ),
        (
            lambda queue, where: queue.configure(where, max_concurency=1),
            "configure has max_concurency=1, which is none of its arguments; write max_concurrency=1",
        ),
        (
            lambda queue, where: queue.configure(where, colour=1),
            "configure has colour=1, which is none of its arguments; its arguments are defaults, max_concurrency, rate",
        ),
        (lambda queue, where: queue.configure(where, 5), "configure has 5 without a name; its arguments are defaults"),
        (lambda queue, where: queue.enqueue(where, payload=1), "missing 1 required keyword-only argument: 'channel'"),
    ],
)
def test_names(queue: Queue, engine: Engine, call: Callable[[Queue, Any], object], words: str) -> None:
    """An argument without a name, or with a misspelt one, is refused with what to write."""
    with Session(engine) as session, pytest.raises(TypeError) as caught:
        call(queue, session)
    assert words in str(caught.value)


async def test_names_of_a_twin(queue: Queue, async_engine: AsyncEngine) -> None:
    """Where it is awaited, the same."""
    with pytest.raises(TypeError, match=r"aconfigure has histroy=True, .*; write history=True"):
        await queue.aconfigure(async_engine, histroy=True)  # type: ignore[call-arg]


def test_errors_from_within_stay() -> None:
    """A TypeError that the method raises itself is not that of the call."""

    class Broken(JsonCodec):
        def encode(self, payload: Any) -> bytes:
            raise TypeError(f"from within {payload}")

    with Session() as session, pytest.raises(TypeError, match="from within"):
        Queue("documents", codec=Broken()).enqueue(session, channel="a", payload=1)
