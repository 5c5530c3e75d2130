"""Handlers called by a test: with a payload, and with what a session has enqueued."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Batch, Bury, Context, Delivery, InvalidArgument, Queue, Release, Retry, RetryPolicy
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.testing import aperform, assert_enqueued, drain, perform, refute_enqueued, rolled_back
from tests.fixtures.database import Database


@pytest.fixture
def application(queue: Queue) -> Queue:
    """A queue with handlers: parse splits into pages, page counts, moody does as its payload says."""

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        for page in range(delivery.payload["pages"]):
            queue.enqueue(session, channel=delivery.channel, payload={"page": page}, kind="page")

    @queue.handler("page")
    def page(delivery: Delivery, session: Session, context: Context) -> None:
        context.check()
        session.execute(text("insert into counted values (:page)"), {"page": delivery.payload["page"]})

    @queue.handler("moody", retry=RetryPolicy(first=timedelta(hours=1), cap=timedelta(hours=1)))
    def moody(delivery: Delivery) -> Any:
        wanted = {
            "retry": Retry(delay=timedelta(minutes=1), error="busy"),
            "class": Retry,
            "release": Release(),
            "bury": Bury("over"),
            "number": 7,
        }
        match delivery.payload:
            case "raise":
                raise Bury("raised")
            case "fail":
                raise ValueError("a bug")
            case mood:
                return wanted.get(mood)

    @queue.handler("generator")
    def generator(delivery: Delivery) -> Any:
        return (page for page in [delivery])

    return queue


def test_perform(application: Queue) -> None:
    """A handler is called with a payload, and its outcome comes back, returned or raised."""
    assert perform(application, "well", kind="moody") is None
    assert perform(application, "number", kind="moody") is None
    retried = perform(application, "retry", kind="moody", attempt=3)
    assert isinstance(retried, Retry)
    assert retried.error == "busy"
    assert isinstance(perform(application, "class", kind="moody"), Retry)
    assert isinstance(perform(application, "raise", kind="moody"), Bury)
    with pytest.raises(ValueError, match="a bug"):
        perform(application, "fail", kind="moody")
    with pytest.raises(WorkerError, match="returned a generator"):
        perform(application, 1, kind="generator")


def test_perform_with_a_session(application: Queue, session: Session) -> None:
    """A handler that takes a session gets the test's, and what it enqueues is recorded there."""
    perform(application, {"pages": 2}, kind="parse", session=session, channel="customer-7")
    assert_enqueued(session, application, kind="page", channel="customer-7", count=2)
    with pytest.raises(InvalidArgument, match="kind 'parse' takes a session; call perform"):
        perform(application, {"pages": 2}, kind="parse")
    with pytest.raises(InvalidArgument, match="has no handler of kind 'pasre'; it has 'generator', 'moody', 'page'"):
        perform(application, 1, kind="pasre")


def test_drain(application: Queue, session: Session, database: Database) -> None:
    """What the session has enqueued is performed in its transaction, with what handlers enqueue; nothing stays."""
    database.execute("create table counted (page integer)")
    application.enqueue(session, channel="customer-7", payload={"pages": 2}, kind="parse")
    application.enqueue(session, channel="customer-9", payload={"pages": 1}, kind="parse")
    performed = drain(session, application)
    assert [one.delivery.kind for one in performed].count("page") == 3
    assert all(one.outcome is None for one in performed)
    assert session.scalars(text("select count(*) from counted")).one() == 3
    refute_enqueued(session, application)
    assert drain(session, application) == []
    assert database.value("select count(*) from counted") == 0
    assert database.value("select count(*) from fq_message") == 0


def test_outcomes(application: Queue, session: Session) -> None:
    """Messages are settled as their handlers say: tried later, given back, buried."""
    for mood in ("retry", "class", "release", "bury", "raise", "well"):
        application.enqueue(session, channel="a", payload=mood, kind="moody")
    performed = {one.delivery.payload: one.outcome for one in drain(session, application)}
    assert {mood: type(outcome).__name__ for mood, outcome in performed.items()} == {
        "retry": "Retry", "class": "Retry", "release": "Release", "bury": "Bury", "raise": "Bury", "well": "NoneType",
    }  # fmt: skip
    session.commit()
    remaining = assert_enqueued(session, application, kind="moody", count=3)
    assert {one.payload for one in remaining} == {"retry", "class", "release"}
    letters = application.dead_letters.list(session.connection())
    assert sorted(letter.reason for letter in letters) == ["over", "raised"]
    [left] = assert_enqueued(session, application, payload="class")
    # Not left to chance.
    assert left.at is not None
    assert timedelta(minutes=59) < left.at - datetime.now(UTC) <= timedelta(hours=1)


def test_what_a_batch_asks_for_one_delivery(queue: Queue, session: Session) -> None:
    """A delivery is settled as the handler asked by its context, whatever becomes of the others."""

    @queue.handler(batch=Batch(max_messages=5))
    def handle(deliveries: list[Delivery], context: Context) -> None:
        for delivery in deliveries:
            if not delivery.payload:
                context.bury(delivery, "empty")

    assert perform(queue, "") == Bury("empty")
    assert perform(queue, "full") is None
    for payload in ("", "full"):
        queue.enqueue(session, channel="a", payload=payload)
    assert [one.outcome for one in drain(session, queue)] == [Bury("empty"), None]
    session.commit()
    assert [letter.reason for letter in queue.dead_letters.list(session.connection())] == ["empty"]


async def test_exceptions_that_a_policy_names(queue: Queue, session: Session) -> None:
    """They are the outcomes that the policy says, raised from the exception; the others come out."""
    policy = RetryPolicy(bury_on=(LookupError,), retry_on=(OSError,), first=timedelta(hours=1), cap=timedelta(hours=1))

    @queue.handler("call", retry=policy)
    def call(delivery: Delivery) -> None:
        raise {"key": KeyError, "line": ConnectionError, "bug": TypeError}[delivery.payload]("said")

    buried = perform(queue, "key", kind="call")
    assert buried == Bury("not retried: KeyError")
    assert isinstance(buried.__cause__, KeyError)
    assert isinstance(await aperform(queue, "line", kind="call"), Retry)
    with pytest.raises(TypeError, match="said"):
        perform(queue, "bug", kind="call")
    for payload in ("key", "line"):
        queue.enqueue(session, channel="a", payload=payload, kind="call")
    assert [type(one.outcome) for one in drain(session, queue)] == [Bury, Retry]
    session.commit()
    [letter] = queue.dead_letters.list(session.connection())
    assert (letter.reason, "KeyError: 'said'" in (letter.error or "")) == ("not retried: KeyError", True)
    assert_enqueued(session, queue, payload="line", count=1)


def test_rates_are_raised_in_the_transaction(queue: Queue, session: Session, engine: Engine) -> None:
    """What the rate of a queue or a channel holds back is performed once the test has raised or lifted it."""
    queue.handler()(lambda _: None)
    queue.configure(engine, rate="1/h")
    queue.configure_channel(engine, "slow", rate="1/h")
    for payload in range(3):
        queue.enqueue(session, channel="slow", payload=payload)
        queue.enqueue(session, channel="a", payload=payload)
    assert len(drain(session, queue)) == 1
    queue.configure(session, rate="1000000/s, burst 1000000")
    assert len(drain(session, queue)) == 3
    queue.configure_channel(session, "slow", rate=None)
    assert len(drain(session, queue)) == 2
    session.rollback()


def test_what_fails_a_drain(application: Queue, session: Session) -> None:
    """What a handler raises; a handler that enqueues itself, at the limit; an async handler in a plain session."""

    @application.handler("again")
    def again(delivery: Delivery, session: Session) -> None:
        application.enqueue(session, channel="a", payload=delivery.payload, kind="again")

    @application.handler("call")
    async def call(delivery: Delivery) -> None:
        """Do nothing."""

    for kind, error, said in (
        ("moody", ValueError, "a bug"),
        ("again", InvalidArgument, "more than 10 messages are due in queue 'documents'"),
        ("call", InvalidArgument, "is async; await aperform, or drain"),
    ):
        application.enqueue(session, channel="a", payload="fail", kind=kind)
        with pytest.raises(error, match=said):
            drain(session, application, limit=10)
        session.rollback()


def test_more_work_after_a_drain(application: Queue, session: Session, engine: Engine) -> None:
    """The session can record, drain and commit again in any order; what others have committed is performed."""
    for channel in ("b", "a"):
        application.enqueue(session, channel=channel, payload="well", kind="moody")
        assert len(drain(session, application)) == 1
    application.enqueue(session, channel="a", payload="well", kind="moody")
    application.enqueue(engine, channel="c", payload="well", kind="moody")
    session.commit()
    assert len(drain(session, application)) == 2


async def test_async_handlers(queue: Queue, async_session: AsyncSession, database: Database) -> None:
    """Async and plain handlers are performed in an AsyncSession."""
    database.execute("create table counted (page integer)")

    @queue.handler("parse")
    async def parse(delivery: Delivery, session: AsyncSession) -> None:
        await session.execute(text("insert into counted values (1)"))
        queue.enqueue(session, channel=delivery.channel, payload=1, kind="page")

    @queue.handler("page")
    def page(delivery: Delivery, session: Session) -> None:
        session.execute(text("insert into counted values (:page)"), {"page": delivery.payload + 1})

    queue.enqueue(async_session, channel="a", payload=1, kind="parse")
    performed = await drain(async_session, queue)
    assert [one.delivery.kind for one in performed] == ["parse", "page"]
    assert (await async_session.scalars(text("select sum(page) from counted"))).one() == 3
    assert await aperform(queue, 1, kind="parse", session=async_session) is None
    with pytest.raises(InvalidArgument, match="is async; await aperform"):
        perform(queue, 1, kind="parse")
    assert database.value("select count(*) from counted") == 0


def test_what_follows_in_an_ordering_key_and_a_dead_letter(queue: Queue, engine: Engine) -> None:
    """Messages of an ordering key are performed one after the other, and functions that follow dead letters, too."""
    done: list[object] = []

    @queue.handler("page")
    def page(delivery: Delivery) -> Bury | None:
        done.append(delivery.payload)
        return Bury("no page") if delivery.payload == 2 else None

    @queue.on_dead("page")
    def tell(delivery: Delivery) -> None:
        done.append(delivery.payload["reason"])

    with rolled_back(engine) as session:
        for number in 1, 2, 3:
            queue.enqueue(session, channel="a", payload=number, kind="page", ordering_key="k")
        drain(session, queue)
    assert sorted(done, key=str) == [1, 2, 3, "no page"]
    assert [one for one in done if isinstance(one, int)] == [1, 2, 3]
