"""Contents of messages in errors and logs of SQLAlchemy."""

import logging
import traceback

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, Enqueue, Queue
from tests.fixtures.database import Database

_CARD = "the card is 4111"


def _refuse(database: Database) -> None:
    """A constraint of the application's, which PostgreSQL explains by the row."""
    database.execute("alter table fq_message add constraint mine check (kind <> 'bad')")


def _text(caught: pytest.ExceptionInfo[DBAPIError]) -> str:
    error = caught.value
    assert isinstance(error.orig, Exception)
    return "\n".join([*traceback.format_exception(error), str(error.orig), repr(error)])


@pytest.mark.parametrize("several", [False, True])
def test_errors(engine: Engine, database: Database, several: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The text of an error has neither payloads nor headers nor keys, by parameters or by the row that was refused."""
    queue = Queue("documents", codec=BytesCodec())
    _refuse(database)
    message = Enqueue(
        channel="customer-7",
        payload=_CARD.encode(),
        kind="bad",
        key=f"{_CARD}\nCONTEXTS: {_CARD}",
        headers={"card": _CARD},
    )
    with Session(engine) as session:
        queue.enqueue_many(session, [message] * (1 + several))
        with pytest.raises(DBAPIError, match="violates check constraint") as caught:
            session.commit()
    text = _text(caught)
    assert "Failing row contains (...)" in text
    assert "SQL parameters hidden" in text
    assert "4111" not in text
    assert _CARD.encode().hex() not in text


async def test_async_errors(async_engine: AsyncEngine, database: Database) -> None:
    """The same on an AsyncEngine, at once."""
    _refuse(database)
    with pytest.raises(DBAPIError) as caught:
        await Queue("documents").aenqueue_now(async_engine, channel="a", payload=_CARD, kind="bad")
    assert "4111" not in _text(caught)


@pytest.mark.parametrize("count", [1, 3])
def test_logs(engine: Engine, caplog: pytest.LogCaptureFixture, count: int) -> None:
    """An engine with echo logs the lengths of payloads, and they arrive as they are."""
    queue = Queue("documents")
    echoing = create_engine(engine.url, echo=True)
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"), Session(echoing) as session:
        queue.enqueue_many(session, [Enqueue(channel="a", payload=_CARD)] * count)
        session.commit()
    echoing.dispose()
    assert "<18 bytes>" in caplog.text
    assert "4111" not in caplog.text
    assert [delivery.payload for delivery in queue.dequeue(engine, limit=9)] == [_CARD] * count
