"""Results of handlers that workers keep."""

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, SecretStr
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Batch, Context, Delivery, PayloadError, Queue, Retry, Worker
from sqlalchemy_fairqueue.errors import InvalidArgument, MessageFailed, ResultCancelled, ResultNotKept, ResultNotReady
from sqlalchemy_fairqueue.testing import drain
from sqlalchemy_fairqueue.worker.settler import Settler
from tests.fixtures.database import Database
from tests.results import isolated
from tests.results.conftest import HOUR
from tests.results.isolated import Page
from tests.worker.helpers import drained, retimed, send, until


class Colour(Enum):
    """An enum."""

    RED = "red"


class Secret(BaseModel):
    """What pydantic masks."""

    token: SecretStr


class Report(BaseModel):
    """A pydantic model."""

    pages: list[int]
    at: datetime


@dataclass
class Invoice:
    """A dataclass with more."""

    id: UUID
    total: Decimal
    colour: Colour
    report: Report | None = None


_NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
_BATCH = Batch(max_messages=5)
_INVOICE = Invoice(UUID(int=7), Decimal("7.10"), Colour.RED, Report(pages=[1, 2], at=_NOW))


def test_threads(engine: Engine, queue: Queue) -> None:
    """Plain handlers, with a session too, and what a middleware returns in their place. Of a batch each message has its
    own, in the order of the deliveries; None says that no message has one.
    """

    @queue.handler("session")
    def session(delivery: Delivery, session: Session) -> Any:
        queue.enqueue(session, channel="a", payload=0, kind="plain")
        return [delivery.payload]

    @queue.handler("own verb")
    def own(delivery: Delivery, session: Session) -> Any:
        queue.complete(session, delivery, result="by the verb")
        return "ignored"

    @queue.handler("batch in a session", batch=_BATCH)
    def double(deliveries: list[Delivery], session: Session) -> list[int]:
        session.flush()
        return [2 * delivery.payload for delivery in deliveries]

    @queue.middleware
    def twice(context: Context, proceed: Any) -> Any:
        found = proceed()
        return [found, found] if context.delivery.payload == "twice" else found

    queue.handler("batch", batch=_BATCH)(lambda deliveries: [2 * one.payload for one in deliveries])
    queue.handler("plain")(lambda delivery: {"got": delivery.payload})
    queue.handler("none", batch=_BATCH)(lambda deliveries: None)  # noqa: ARG005 - named as it is asked for
    expected: dict[str, dict[Any, Any]] = {
        "plain": {1: {"got": 1}, "twice": [{"got": "twice"}, {"got": "twice"}]},
        "session": {3: [3]},
        "own verb": {4: "by the verb"},
        "batch": {1: 2, 2: 4, 3: 6},
        "batch in a session": {1: 2, 2: 4, 3: 6},
        "none": {1: None, 2: None},
    }
    ids = {kind: send(engine, queue, *values, kind=kind) for kind, values in expected.items()}
    drained(engine, queue, concurrency=1)
    found = {kind: [queue.result(engine, one) for one in sent] for kind, sent in ids.items()}
    assert found == {kind: list(values.values()) for kind, values in expected.items()}


async def test_an_event_loop(async_engine: AsyncEngine, engine: Engine, queue: Queue) -> None:
    """Coroutines, with a session and for batches too, and plain functions in threads."""

    @queue.handler("coroutine")
    async def coroutine(delivery: Delivery) -> Any:
        return {"got": delivery.payload}

    @queue.handler("session")
    async def session(delivery: Delivery, session: AsyncSession) -> Any:
        return [delivery.payload, await session.scalar(text("select 7"))]

    @queue.handler("batch", batch=_BATCH)
    async def batch(deliveries: list[Delivery], session: AsyncSession) -> list[Any]:
        await session.flush()
        return [2 * delivery.payload for delivery in deliveries]

    queue.handler("plain")(lambda delivery: delivery.payload)
    ids = [send(engine, queue, kind, kind=kind)[0] for kind in ("coroutine", "session", "plain")]
    ids += send(engine, queue, 1, 2, 3, kind="batch")
    await AsyncWorker(async_engine, queue, concurrency=1, housekeeping=False).run(drain=True)
    found = [await queue.result(async_engine, one) for one in ids]
    assert found == [{"got": "coroutine"}, ["session", 7], "plain", 2, 4, 6]


def test_outcomes(engine: Engine, queue: Queue) -> None:
    """A handler that asks for a retry returns nothing else; one that fails for good, or was cancelled, no result."""

    @queue.handler("fail")
    def fail(_: Delivery) -> None:
        raise ValueError("a bug")

    @queue.handler("cancel")
    def cancel(delivery: Delivery) -> Any:
        queue.cancel(engine, delivery.message_id)
        return "too late"

    queue.handler("retry")(lambda delivery: Retry(delay=HOUR) if delivery.attempt == 1 else "second")
    first, second, third = (
        send(engine, queue, 1, kind=kind, max_attempts=n)[0] for kind, n in (("retry", 9), ("fail", 1), ("cancel", 9))
    )
    drained(engine, queue)
    assert queue.message(engine, first) is not None
    with pytest.raises(MessageFailed, match=r"attempts exhausted \(ValueError: a bug\)"):
        queue.result(engine, second)
    with pytest.raises(ResultCancelled):
        queue.result(engine, third)
    queue.admin.retry_now(engine, first)
    drained(engine, queue)
    assert queue.result(engine, first) == "second"


def test_what_cannot_be_kept(
    engine: Engine, queue: Queue, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is completed, once, for its handler has done its work; who asks is told why there is no value."""
    cases: list[tuple[object, str]] = [
        (object(), "a object cannot be encoded"),
        ({"a": {1}}, r"\$\.a: a set cannot be encoded"),
        ("x" * 2**20, "1,048,578 bytes"),
        ("\ud800", "lone surrogate"),
        ("\x00", "NUL character"),
    ]
    calls = []

    @queue.handler("default")
    def handle(delivery: Delivery) -> Any:
        calls.append(delivery.attempt)
        return cases[delivery.payload][0]

    ids = send(engine, queue, *range(len(cases)))
    with caplog.at_level(logging.WARNING, logger="sqlalchemy_fairqueue"):
        drained(engine, queue)
    assert calls == [1] * len(cases)
    assert database.value("select count(*) from fq_dead_letter") == 0
    for message_id, (_, problem) in zip(ids, cases, strict=True):
        with pytest.raises(ResultNotKept, match=f"what its handler returned could not be kept: .*{problem}"):
            queue.result(engine, message_id)
    assert caplog.text.count("is completed, and what its handler returned is not kept") == len(cases)


def test_typed_jobs(engine: Engine, queue: Queue) -> None:
    """What a job is annotated with comes back, by the queue and by the job; another process gets plain values."""

    @queue.job
    def invoice() -> Invoice:
        return _INVOICE

    @queue.job
    def several() -> list[Report] | Retry | None:
        return [Report(pages=[7], at=_NOW)]

    @queue.job
    def times() -> dict[str, datetime]:
        return {"at": _NOW}

    @queue.job
    def untyped() -> Any:
        return {"pages": [7]}

    @queue.job
    def nothing() -> None:
        """Nothing."""

    @queue.job(batch=_BATCH)
    def pages(numbers: list[int]) -> list[Page] | None:
        return [Page(one) for one in numbers]

    calls: list[tuple[Any, list[int], Any]] = [
        (invoice, [], _INVOICE),
        (several, [], [Report(pages=[7], at=_NOW)]),
        (times, [], {"at": _NOW}),
        (untyped, [], {"pages": [7]}),
        (nothing, [], None),
        (pages, [1], Page(1)),
        (pages, [2], Page(2)),
    ]
    ids = [job.enqueue(engine, "a", *given).message_id for job, given, _ in calls]
    drained(engine, queue, concurrency=1)
    for (job, _, value), message_id in zip(calls, ids, strict=True):
        assert job.result(engine, message_id) == queue.result(engine, message_id) == value
    assert Queue("documents").result(engine, ids[0])["total"] == "7.10"
    with pytest.raises(InvalidArgument, match=r"is of kind 'invoice', not of job 'nothing'"):
        nothing.result(engine, ids[0])


def test_jobs_whose_results_cannot_come_back(engine: Engine, queue: Queue) -> None:
    """What does not fit the annotation, or would not come back equal and of its own type, is not kept."""

    @queue.job
    def wrong() -> int:
        return "seven"  # type: ignore[return-value]

    @queue.job
    def secret() -> Secret:
        return Secret(token=SecretStr("hunter2"))

    @queue.job
    def unsaid():  # type: ignore[no-untyped-def] # noqa: ANN202 - that is the point
        return _NOW

    lost = "would come back as"
    for job, said in ((wrong, "'wrong' returned 'seven': Expected `int`, got `str`"), (secret, lost), (unsaid, lost)):
        message_id = job.enqueue(engine, "a").message_id or 0
        drained(engine, queue)
        with pytest.raises(ResultNotKept, match=said):
            job.result(engine, message_id)


def test_a_result_of_another_version(engine: Engine, queue: Queue) -> None:
    """A value that does not fit the annotation any more is an error that says so."""
    queue.handler("count")(lambda _: "seven")
    [message_id] = send(engine, queue, 1, kind="count")
    drained(engine, queue)
    now = Queue("documents")

    @now.job
    def count() -> int:
        return 7

    with pytest.raises(PayloadError, match="the result of job 'count' is 'seven': Expected `int`, got `str`"):
        count.result(engine, message_id)


@pytest.mark.usefixtures("forked_children")
def test_child_processes(engine: Engine) -> None:
    """The value comes from the child; what cannot be sent is not kept, and the message is completed."""
    queue = isolated.queue
    queue.configure(engine, result_retention=HOUR)
    [first] = send(engine, queue, {"a": [1]}, kind="value")
    [second] = send(engine, queue, 2, kind="lock")
    jobs: list[Any] = [isolated.page, isolated.pages, isolated.pages]
    pages = [(job, job.enqueue(engine, "a", number).message_id) for number, job in enumerate(jobs)]
    drained(engine, queue, concurrency=1)
    assert queue.result(engine, first) == {"a": [1]}
    with pytest.raises(ResultNotKept, match="a lock cannot be sent from its child process"):
        queue.result(engine, second)
    assert [job.result(engine, one) for job, one in pages] == [Page(0), Page(1), Page(2)]


def test_nothing_is_encoded_where_nothing_is_kept(engine: Engine, database: Database) -> None:
    """A queue that keeps no results takes whatever handlers return."""
    queue = Queue("other")
    queue.handler("default")(lambda _: object())
    [message_id] = send(engine, queue, 1)
    drained(engine, queue)
    assert database.value("select count(*) from fq_result") == 0
    with pytest.raises(ResultNotKept):
        queue.result(engine, message_id)


def test_many_large_results(engine: Engine, queue: Queue, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call keeps a bounded number of bytes, however many deliveries have finished."""
    sizes: list[int] = []
    sent = Settler._send

    def noted(self: Settler, served: Any, verb: Any, deliveries: Any) -> None:
        sizes.append(sum(held.decision.result_bytes for held in deliveries))
        sent(self, served, verb, deliveries)

    monkeypatch.setattr(Settler, "_send", noted)
    queue.handler("default")(lambda _: "x" * 1000)
    send(engine, queue, *range(40))
    retimed(Worker(engine, queue, housekeeping=False, concurrency=20), settle_bytes=3500).run(drain=True)
    assert database.value("select count(*) from fq_result where octet_length(content) = 1002") == 40
    assert max(sizes) <= 3500


def test_housekeeping(engine: Engine, queue: Queue, database: Database) -> None:
    """A worker deletes what is over, and nothing else."""
    for each in (timedelta(microseconds=1), HOUR):
        queue.configure(engine, result_retention=each)
        queue.enqueue(engine, channel="a", payload=1)
        queue.complete(engine, queue.dequeue(engine), result=1)
    database.execute("select fq_wait_for_result('documents', 1, gen_random_uuid(), 1)")
    queue.handler("default")(lambda _: None)
    with retimed(Worker(engine, queue), housekeeping_first=0.0, pruned_at_once=1):
        until(lambda: database.value("select count(*) from fq_result") == 1, "it is deleted")
        until(lambda: database.value("select count(*) from fq_result_wait") == 0, "the wait too")
    assert database.value("select count(*) from fq_result where expires_at > fq_now()") == 1


def test_inline(engine: Engine, queue: Queue) -> None:
    """Drain keeps results in the test's transaction, those of batches too, and shows what was returned."""

    @queue.job
    def invoice() -> Invoice:
        return _INVOICE

    @queue.job(batch=_BATCH)
    def pages(numbers: list[int]) -> list[Page]:
        return [Page(one) for one in numbers]

    with Session(engine) as session:
        invoice.enqueue(session, "a")
        pages.enqueue(session, "b", 7)
        performed, batch = drain(session, queue)
        assert (performed.result, performed.outcome, batch.result) == (_INVOICE, None, [Page(7)])
        message_id = performed.delivery.message_id
        assert invoice.result(session, message_id) == _INVOICE
        assert pages.result(session, batch.delivery.message_id) == Page(7)
        session.rollback()
    with pytest.raises(ResultNotKept):
        invoice.result(engine, message_id)


async def test_inline_awaited(async_engine: AsyncEngine, queue: Queue) -> None:
    """Adrain does the same with an AsyncSession."""

    @queue.job
    async def double(number: int) -> int:
        return 2 * number

    async with AsyncSession(async_engine) as session:
        double.enqueue(session, "a", 21)
        [performed] = await drain(session, queue)
        assert performed.result == 42
        assert await double.result(session, performed.delivery.message_id) == 42


@pytest.mark.parametrize("returned", [[1, 2], {"a": 1}, "abc"])
def test_another_number_of_results(
    engine: Engine, queue: Queue, caplog: pytest.LogCaptureFixture, returned: Any
) -> None:
    """The messages are completed, for the handler has done its work; who asks for a result is told what was wrong."""
    queue.handler("default", batch=_BATCH)(lambda deliveries: returned)  # noqa: ARG005 - named as it is asked for
    ids = send(engine, queue, 1, 2, 3)
    with caplog.at_level(logging.WARNING, logger="sqlalchemy_fairqueue"):
        drained(engine, queue, concurrency=1)
    problem = f"it is a {type(returned).__name__} .*for a batch of 3"
    assert re.search(problem, caplog.text)
    for one in ids:
        with pytest.raises(ResultNotKept, match=problem):
            queue.result(engine, one)
    stats = queue.stats(engine)
    assert (stats.ready, stats.scheduled, stats.dead) == (0, 0, 0)


def test_single_ones_of_a_batch_that_have_none(engine: Engine, queue: Queue) -> None:
    """One that cannot be kept, is buried or tried again leaves the others theirs."""

    @queue.handler(batch=_BATCH)
    def handle(deliveries: list[Delivery], context: Context) -> list[Any]:
        context.bury(deliveries[1], "bad")
        context.retry(deliveries[2], delay=timedelta(hours=1))
        return [{1}, "buried", "retried", "kept"]

    unkept, buried, retried, kept = send(engine, queue, 1, 2, 3, 4)
    drained(engine, queue, concurrency=1)
    assert queue.result(engine, kept) == "kept"
    with pytest.raises(ResultNotKept, match="a set cannot be encoded"):
        queue.result(engine, unkept)
    with pytest.raises(MessageFailed, match="bad"):
        queue.result(engine, buried)
    with pytest.raises(ResultNotReady):
        queue.result(engine, retried)
