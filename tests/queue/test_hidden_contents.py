"""Contents of messages in errors and logs of SQLAlchemy."""

import logging
import traceback
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, Enqueue, Queue
from tests.fixtures.database import Database

_CARD = "the card is 4111"
_HOUR = timedelta(hours=1)


def _text(caught: pytest.ExceptionInfo[DBAPIError]) -> str:
    error = caught.value
    assert isinstance(error.orig, Exception)
    return "\n".join([*traceback.format_exception(error), str(error.orig), repr(error)])


async def test_errors(engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """The text of an error has neither payloads nor headers nor keys, by parameters or by the row that was refused."""
    queue = Queue("documents", codec=BytesCodec())
    # A constraint of the application's, which PostgreSQL explains by the row.
    database.execute("alter table fq_message add constraint mine check (kind <> 'bad')")
    message = Enqueue(
        channel="customer-7",
        payload=_CARD.encode(),
        kind="bad",
        key=f"{_CARD}\nCONTEXTS: {_CARD}",
        headers={"card": _CARD},
    )
    for count in (1, 2):
        with pytest.raises(DBAPIError, match="violates check constraint") as caught:
            queue.enqueue_many(engine, [message] * count)
        text = _text(caught)
        assert "Failing row contains (...)" in text
        assert "SQL parameters hidden" in text
        assert "4111" not in text
        assert _CARD.encode().hex() not in text
    with pytest.raises(DBAPIError) as caught:
        await Queue("documents").enqueue(async_engine, channel="a", payload=_CARD, kind="bad")
    assert "4111" not in _text(caught)


def _schedule(queue: Queue, engine: Engine) -> None:
    queue.schedules.set(engine, _CARD, every=_HOUR, channel="a", kind="k", payload=_CARD, headers={"card": _CARD})


def _group(queue: Queue, engine: Engine) -> None:
    then = Enqueue(channel="a", kind="k", payload=_CARD, headers={"card": _CARD})
    with Session(engine) as session, session.begin(), queue.group(session, then=then) as group:
        group.enqueue_many([Enqueue(channel="a", kind="k", payload=_CARD)])


def _bury(queue: Queue, engine: Engine) -> None:
    queue.enqueue(engine, channel="a", payload=_CARD, headers={"card": _CARD})
    queue.bury(engine, queue.dequeue(engine), reason=_CARD, error=_CARD)


def _complete(queue: Queue, engine: Engine) -> None:
    queue.configure(engine, result_retention=_HOUR)
    queue.enqueue(engine, channel="a", payload=_CARD)
    [delivery] = queue.dequeue(engine)
    with Session(engine) as session, session.begin():
        queue.complete(session, delivery, result=_CARD)


def _enqueue_unique(queue: Queue, engine: Engine) -> None:
    queue.enqueue(engine, channel="a", payload=_CARD, key=_CARD, unique_for=_HOUR)


_CALLS: dict[str, Callable[[Queue, Engine], None]] = {
    "fq_schedule": _schedule,
    "fq_group_followup": _group,
    "fq_dead_letter": _bury,
    "fq_result": _complete,
    "fq_key_period": _enqueue_unique,
}


def test_errors_of_other_tables(engine: Engine, database: Database) -> None:
    """What schedules, groups, dead letters, results and keys hold is in no text of an error either."""
    for table, call in _CALLS.items():
        database.execute(f"alter table {table} add constraint mine check (false) not valid")
        with pytest.raises(DBAPIError, match="violates check constraint") as caught:
            call(Queue(table), engine)
        text = _text(caught)
        assert "Failing row contains (...)" in text
        assert "4111" not in text


def test_logs(queue: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """An engine with echo logs the lengths of payloads, and they arrive as they are."""
    echoing = create_engine(engine.url, echo=True)
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"):
        for count in (1, 3):
            queue.enqueue_many(echoing, [Enqueue(channel="a", payload=_CARD)] * count)
    echoing.dispose()
    assert caplog.text.count("<18 bytes>") >= 2
    assert "4111" not in caplog.text
    assert [delivery.payload for delivery in queue.dequeue(engine, limit=9)] == [_CARD] * 4
