"""Outcomes of classes of the application's own mean what the classes mean that they are derived from."""

import asyncio
import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Bury, Delivery, Queue, Release, Retry, RetryPolicy
from sqlalchemy_fairqueue.testing import aperform
from sqlalchemy_fairqueue.values.outcomes import Outcome
from tests.fixtures.database import Database
from tests.worker import isolated
from tests.worker.helpers import drained, send

_TWICE = RetryPolicy(first=timedelta(), max_attempts=2)


class Declared(Retry):
    """Says it for all of its outcomes."""

    delay = timedelta(hours=1)
    error = "slow down"


class Unprepared(Retry):
    """Does not call __init__."""

    def __init__(self, hours: int) -> None:
        self.delay = timedelta(hours=hours)
        self.error = "slow down"


class Closed(Release):
    """Has arguments of its own."""

    def __init__(self, hours: int) -> None:
        super().__init__(delay=timedelta(hours=hours))


class NoSuchCustomer(Bury):
    """Has attributes of its own."""

    def __init__(self, customer: int, /) -> None:
        super().__init__(f"no customer {customer}")
        self.customer = customer


_OUTCOMES: list[Outcome] = [isolated.RateLimited(3600), Declared(), Unprepared(1), Closed(1), NoSuchCustomer(7)]
_BASES: list[Outcome] = [
    Retry(delay=timedelta(hours=1), error="slow down"),
    Release(delay=timedelta(hours=1)),
    Bury("no customer 7"),
]
_RETRIED, _RELEASED, _BURIED = ("slow down", 1, True), (None, 0, True), "no customer 7"
_ENDS = [_RETRIED, _RETRIED, _RETRIED, _RELEASED, _BURIED, _RETRIED, _RELEASED, _BURIED]


def _end(database: Database, message_id: int) -> object:
    """How a message was settled."""
    error = "select error, attempts, dequeue_at - fq_now() > 3.5e9 as late from fq_message where id = :id"
    if rows := database.rows(error, id=message_id):
        return tuple(rows[0])
    return database.value("select reason from fq_dead_letter where message_id = :id", id=message_id)


async def test_in_threads_and_tasks(engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """Raised and returned they settle the message as a worker does for their base, and a test sees them as they are."""
    outcomes = [*_OUTCOMES, *_BASES]

    def finish(delivery: Delivery) -> Outcome:
        outcome: Outcome = outcomes[delivery.payload["number"]]
        if delivery.payload["raises"]:
            raise outcome
        return outcome

    def in_session(delivery: Delivery, session: Session) -> Any:  # noqa: ARG001 - named as it is asked for
        return finish(delivery)

    async def asynchronous(delivery: Delivery) -> Any:
        return finish(delivery)

    async def async_in_session(delivery: Delivery, session: AsyncSession) -> Any:  # noqa: ARG001 - see above
        return finish(delivery)

    payloads = [{"number": number, "raises": raises} for number in range(len(outcomes)) for raises in (False, True)]
    handlers: list[Any] = [finish, in_session, asynchronous, async_in_session]
    for handler in handlers:
        queue = Queue(handler.__name__)
        queue.handler(handler)
        sent = send(engine, queue, *payloads)
        if asyncio.iscoroutinefunction(handler):
            await AsyncWorker(async_engine, queue, housekeeping=False, retry=_TWICE).run(drain=True)
        else:
            await asyncio.to_thread(drained, engine, queue, retry=_TWICE)
        async with AsyncSession(async_engine) as session:
            for message_id, payload in zip(sent, payloads, strict=True):
                assert _end(database, message_id) == _ENDS[payload["number"]], payload
                assert await aperform(queue, payload, session=session) is outcomes[payload["number"]]


def _pickled(outcome: Outcome) -> Any:
    return pickle.loads(pickle.dumps(outcome))  # noqa: S301 - our own


def test_they_can_be_copied() -> None:
    """Copied and pickled they are equal, with all that they have, whatever their arguments are."""
    for outcome in _OUTCOMES:
        for made in (copy.copy(outcome), copy.deepcopy(outcome), _pickled(outcome)):
            assert (made, str(made), vars(made)) == (outcome, str(outcome), vars(outcome))


async def test_an_outcome_that_says_nothing(queue: Queue, engine: Engine) -> None:
    """An Outcome that is neither of the three is an exception like any other, in tests too."""

    class Unknown(Outcome):
        pass

    @queue.handler
    def handle(delivery: Delivery) -> Outcome:
        if delivery.payload == "raised":
            raise Unknown
        return Unknown()

    send(engine, queue, "raised", "returned")
    await asyncio.to_thread(drained, engine, queue, retry=_TWICE)
    exhausted = "attempts exhausted: the policy's limit is 2"
    assert [letter.reason for letter in queue.dead_letters.list(engine)] == [exhausted] * 2
    for payload in ("raised", "returned"):
        with pytest.raises(Unknown):
            await aperform(queue, payload)
