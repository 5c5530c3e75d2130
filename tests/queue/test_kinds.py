"""Kinds of messages that the enqueuing Queue object has no handler for."""

import re
import warnings

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, InvalidArgument, Queue, UnhandledKindWarning
from sqlalchemy_fairqueue.testing import make_delivery
from tests.fixtures.database import Database


def _parser(*, check_kinds: bool = True) -> Queue:
    queue = Queue("documents", check_kinds=check_kinds)
    for kind in "parse", "call":
        queue.handler(kind)(lambda _: None)
    return queue


def test_an_error_where_warnings_are(engine: Engine, database: Database) -> None:
    """Each enqueue of the kind fails then, and adds nothing."""
    queue = _parser()
    said = re.escape("a message of kind 'prase' is enqueued, and queue 'documents' has no handler for it, only for ")
    for _ in range(2):
        with pytest.raises(UnhandledKindWarning, match=said + "'call', 'parse'; "):
            queue.enqueue(engine, channel="c", payload=1, kind="prase")
    with Session(engine) as session:
        with pytest.raises(UnhandledKindWarning, match=said):
            queue.enqueue_many(session, [Enqueue(channel="c", payload=1, kind=kind) for kind in ("parse", "prase")])
        session.commit()
    assert database.value("select count(*) from fq_message") == 0


async def test_once_a_kind(engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """The warning points at the enqueue, and comes once a kind, however often it is enqueued."""
    queue = _parser()
    with warnings.catch_warnings(record=True) as shown, Session(engine) as session:
        warnings.simplefilter("always")
        for kind in "prase", "prase", "parse", "default":
            queue.enqueue(session, channel="c", payload=1, kind=kind)
            queue.enqueue(engine, channel="c", payload=1, kind=kind)
        await queue.enqueue(async_engine, channel="c", payload=1, kind="prase")
        session.commit()
    ours = [one for one in shown if one.category is UnhandledKindWarning]
    assert [str(one.message).split("'")[1] for one in ours] == ["prase", "default"]
    assert {one.filename for one in ours} == {__file__}
    assert database.value("select count(*) from fq_message") == 9


def test_not_where_others_handle_it(engine: Engine) -> None:
    """Nothing is said by a process that only enqueues, nor by one that says that others handle the kind."""
    producer, partial = Queue("documents"), _parser(check_kinds=False)
    for queue in producer, partial:
        queue.enqueue(engine, channel="c", payload=1, kind="prase")
    # Nothing is enqueued by this one.
    assert make_delivery(_parser(), 1, kind="prase").kind == "prase"
    with pytest.raises(InvalidArgument, match="check_kinds is 'no'; give True or False"):
        Queue("documents", check_kinds="no")  # type: ignore[arg-type]
