"""Outcomes of classes of the application's own mean what the classes mean that they are derived from."""

import asyncio
import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sqlalchemy_fairqueue import (
    AsyncWorker,
    Bury,
    Context,
    Delivery,
    Queue,
    Release,
    Retry,
    RetryPolicy,
    Worker,
)
from sqlalchemy_fairqueue.testing import aperform
from sqlalchemy_fairqueue.values import Outcome
from tests.fixtures.database import Database
from tests.worker import isolated
from tests.worker.helpers import send

_AT_ONCE = RetryPolicy(first=timedelta(), max_attempts=2)


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
_RETRIED, _RELEASED = ("slow down", 1, True), (None, 0, True)
_ENDS = [_RETRIED, _RETRIED, _RETRIED, _RELEASED, "no customer 7"]


def _end(database: Database) -> object:
    """How the one message was settled."""
    if rows := database.rows("select error, attempts, dequeue_at - fq_now() > 3.5e9 as late from fq_message"):
        return tuple(rows[0])
    return database.value("select reason from fq_dead_letter")


def _plain(queue: Queue, end: Callable[[], Any]) -> None:
    queue.handler(lambda _: end())


def _in_session(queue: Queue, end: Callable[[], Any]) -> None:
    queue.handler(lambda _, session: end())  # noqa: ARG005 - named as it is asked for


def _async(queue: Queue, end: Callable[[], Any]) -> None:
    @queue.handler
    async def handle(_: Delivery) -> Any:
        return end()


def _async_in_session(queue: Queue, end: Callable[[], Any]) -> None:
    @queue.handler
    async def handle(_: Delivery, session: AsyncSession) -> Any:  # noqa: ARG001 - named as it is asked for
        return end()


@pytest.mark.many(8)
@pytest.mark.parametrize("declare", [_plain, _in_session, _async, _async_in_session])
@pytest.mark.parametrize("how", ["raised", "returned"])
@pytest.mark.parametrize(
    ("outcome", "end"), list(zip(_OUTCOMES, _ENDS, strict=True)), ids=lambda one: type(one).__name__
)
async def test_in_threads_and_tasks(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    async_engine: AsyncEngine,
    database: Database,
    declare: Callable[[Queue, Callable[[], Any]], None],
    how: str,
    outcome: Outcome,
    end: object,
) -> None:
    """Raised and returned they settle the message as a worker does for their base, and a test sees them as they are."""

    def finish() -> Outcome:
        if how == "raised":
            raise outcome
        return outcome

    declare(queue, finish)
    send(engine, queue, 1)
    if declare in {_plain, _in_session}:
        await asyncio.to_thread(Worker(engine, queue, housekeeping=False, retry=_AT_ONCE).run, drain=True)
    else:
        await AsyncWorker(async_engine, queue, housekeeping=False, retry=_AT_ONCE).run(drain=True)
    assert _end(database) == end
    async with AsyncSession(async_engine) as session:
        assert await aperform(queue, 1, session=session) is outcome


def _pickled(outcome: Outcome) -> Any:
    return pickle.loads(pickle.dumps(outcome))  # noqa: S301 - our own


@pytest.mark.parametrize("outcome", _OUTCOMES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, _pickled])
def test_they_can_be_copied(outcome: Outcome, again: Callable[[Outcome], Outcome]) -> None:
    """Copied and pickled they are equal, with all that they have, whatever their arguments are."""
    made = again(outcome)
    assert (made, str(made), vars(made)) == (outcome, str(outcome), vars(outcome))


@pytest.mark.parametrize("how", ["raised", "returned"])
async def test_an_outcome_that_says_nothing(queue: Queue, engine: Engine, database: Database, how: str) -> None:
    """An Outcome that is neither of the three is an exception like any other, in tests too."""

    class Unknown(Outcome):
        pass

    @queue.handler
    def handle(_: Delivery) -> Outcome:
        if how == "raised":
            raise Unknown
        return Unknown()

    send(engine, queue, 1)
    await asyncio.to_thread(Worker(engine, queue, housekeeping=False, retry=_AT_ONCE).run, drain=True)
    assert database.value("select reason from fq_dead_letter") == "attempts exhausted: the policy's limit is 2"
    with pytest.raises(Unknown):
        await aperform(queue, 1)
