"""Handlers that commit the session that the worker gave them."""

import functools
import warnings
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, RetryPolicy
from sqlalchemy_fairqueue.errors import HandlerTransactionWarning
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import auntil, is_empty, send, until

pytestmark = pytest.mark.usefixtures("effects")

_LATER = RetryPolicy(first=timedelta(hours=1), cap=timedelta(hours=1), jitter=0)
_ERROR = "select error from fq_message"
_INSERT = text("insert into effect values (:id)")


class _Commits:
    """A handler that is an object."""

    def __call__(self, delivery: Delivery, session: Session) -> None:
        session.execute(_INSERT, {"id": delivery.message_id})
        session.commit()


def _commit(delivery: Delivery, session: Session, times: int = 1) -> None:
    for _ in range(times):
        session.execute(_INSERT, {"id": delivery.message_id})
        session.commit()


def test_where_warnings_are_errors(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """The commit fails before it writes anything, and the attempt with it; the error names the handler."""
    handlers: dict[str, Any] = {
        "function": _commit, "partial": functools.partial(_commit, times=2), "object": _Commits(),
    }  # fmt: skip
    for kind, handler in handlers.items():
        queue.handler(kind)(handler)
        send(engine, queue, 1, kind=kind)
    worker = start(queue, retry=_LATER)
    until(lambda: worker.stats.retried == 3, "they have failed")
    errors = {row.kind: row.error for row in database.rows("select kind, error from fq_message")}
    for kind, error in errors.items():
        assert f"HandlerTransactionWarning: the handler of kind '{kind}' commits its session itself" in error
    assert database.value("select count(*) from effect") == 0


async def test_async_where_warnings_are_errors(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """The same with an AsyncSession."""

    @queue.handler("parse")
    async def parse(delivery: Delivery, session: AsyncSession) -> None:
        await session.execute(_INSERT, {"id": delivery.message_id})
        await session.commit()

    send(engine, queue, 1, kind="parse")
    async with AsyncWorker(async_engine, queue, retry=_LATER, housekeeping=False) as worker:
        await auntil(lambda: worker.stats.retried == 1, "it has failed")
    assert "handler of kind 'parse' commits its session itself" in database.value(_ERROR)
    assert database.value("select count(*) from effect") == 0


def test_a_warning(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Else the handler goes on and its message is completed. By default one warning is shown, at the handler."""

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        _commit(delivery, session, times=2)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default", HandlerTransactionWarning)
        send(engine, queue, 1, 2, kind="parse")
        worker = start(queue)
        until(lambda: worker.stats.completed == 2, "both are done")
        worker.stop()
    [warning] = [one for one in shown if one.category is HandlerTransactionWarning]
    assert (warning.filename, warning.lineno) == (__file__, parse.__code__.co_firstlineno)
    assert database.value("select count(*) from effect") == 4
    assert is_empty(database)


def test_where_a_warning_is_shown(queue: Queue, engine: Engine, start: StartWorker) -> None:
    """It is at the function of the application, however that is declared: filters by module find it."""
    handlers: dict[str, Any] = {"partial": functools.partial(_commit, times=2), "object": _Commits()}
    for kind, handler in handlers.items():
        queue.handler(kind)(handler)
        send(engine, queue, 1, kind=kind)

    @queue.job
    def job(session: Session, *, number: int) -> None:
        session.execute(_INSERT, {"id": number})
        session.commit()

    job.enqueue(engine, "a", number=1)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default", HandlerTransactionWarning)
        worker = start(queue)
        until(lambda: worker.stats.completed == 3, "all are done")
        worker.stop()
    functions: list[Any] = [_commit, _Commits.__call__, job.function]
    places = {(one.filename, one.lineno) for one in shown if one.category is HandlerTransactionWarning}
    assert places == {(__file__, function.__code__.co_firstlineno) for function in functions}


def test_a_savepoint_and_a_rollback(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Neither is noticed: what was rolled back has never happened, and all else commits with the completion."""

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        session.execute(_INSERT, {"id": delivery.message_id})
        session.rollback()
        with session.begin_nested():
            session.execute(_INSERT, {"id": delivery.message_id})

    send(engine, queue, 1, kind="parse")
    worker = start(queue)
    until(lambda: worker.stats.completed == 1, "it is done")
    assert database.value("select count(*) from effect") == 1
