"""Handlers that commit the session that the worker gave them."""

import functools
import warnings
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, Queue
from sqlalchemy_fairqueue.errors import HandlerTransactionWarning
from tests.fixtures.database import Database
from tests.worker.helpers import LATER, count_effects, drained, is_empty, send, write_effect

pytestmark = pytest.mark.usefixtures("effects")


def _commit(delivery: Delivery, session: Session, times: int = 1) -> None:
    for _ in range(times):
        write_effect(session, delivery)
        session.commit()


class _Commits:
    """A handler that is an object."""

    def __call__(self, delivery: Delivery, session: Session) -> None:
        _commit(delivery, session)


_OBJECTS: dict[str, Any] = {"partial": functools.partial(_commit, times=2), "object": _Commits()}


async def test_where_warnings_are_errors(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """The commit fails before it writes anything, and the attempt with it; the error names the handler."""

    async def acommit(delivery: Delivery, session: AsyncSession) -> None:
        await session.run_sync(lambda sync: _commit(delivery, sync))

    handlers: dict[str, Any] = {"function": _commit, "async": acommit, **_OBJECTS}
    for kind, handler in handlers.items():
        queue.handler(kind)(handler)
        send(engine, queue, 1, kind=kind)
    sessions = sessionmaker(engine)
    worker = AsyncWorker(async_engine, queue, retry=LATER, sync_session_factory=sessions, housekeeping=False)
    await worker.run(drain=True)
    errors = {row.kind: row.error for row in database.rows("select kind, error from fq_message")}
    assert errors.keys() == handlers.keys()
    for kind, error in errors.items():
        assert f"HandlerTransactionWarning: the handler of kind '{kind}' commits its session itself" in error
    assert count_effects(database) == 0


def _warned(engine: Engine, queue: Queue) -> list[tuple[str, int]]:
    """Where warnings are shown by default, while all is completed that there is."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default", HandlerTransactionWarning)
        assert drained(engine, queue).stats.retried == 0
    return [(one.filename, one.lineno) for one in shown if one.category is HandlerTransactionWarning]


def test_a_warning(queue: Queue, engine: Engine, database: Database) -> None:
    """Else the handler goes on and its message is completed. By default one warning is shown, at the handler."""

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        _commit(delivery, session, times=2)

    send(engine, queue, 1, 2, kind="parse")
    assert _warned(engine, queue) == [(__file__, parse.__code__.co_firstlineno)]
    assert count_effects(database) == 4
    assert is_empty(database)


def test_where_a_warning_is_shown(queue: Queue, engine: Engine) -> None:
    """It is at the function of the application, however that is declared: filters by module find it."""
    for kind, handler in _OBJECTS.items():
        queue.handler(kind)(handler)
        send(engine, queue, 1, kind=kind)

    @queue.job
    def job(context: Context, session: Session) -> None:
        _commit(context.delivery, session)

    job.enqueue(engine, "a")
    functions: list[Any] = [_commit, _Commits.__call__, job.function]
    places = {(__file__, function.__code__.co_firstlineno) for function in functions}
    assert set(_warned(engine, queue)) == places


def test_a_savepoint_and_a_rollback(queue: Queue, engine: Engine, database: Database) -> None:
    """Neither is noticed: what was rolled back has never happened, and all else commits with the completion."""

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        write_effect(session, delivery)
        session.rollback()
        with session.begin_nested():
            write_effect(session, delivery)

    send(engine, queue, 1, kind="parse")
    assert drained(engine, queue).stats.completed == 1
    assert count_effects(database) == 1
