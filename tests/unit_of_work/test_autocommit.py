"""AUTOCOMMIT is refused before anything is sent, however it was asked for."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.errors import AutocommitError
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, channels

AUTOCOMMIT = "AUTOCOMMIT"


@pytest.fixture
def autocommit_engine(database: Database) -> Iterator[Engine]:
    """An engine that is told AUTOCOMMIT when it is made."""
    engine = create_engine(database.url, isolation_level=AUTOCOMMIT)
    yield engine
    engine.dispose()


def test_sessions(engine: Engine, autocommit_engine: Engine, database: Database) -> None:
    """A session in AUTOCOMMIT fails its commit, or its immediate enqueue, with nothing sent."""
    option = {"isolation_level": AUTOCOMMIT}
    with engine.connect().execution_options(**option) as connection:
        forms = [Session(autocommit_engine), Session(engine.execution_options(**option)), Session(connection)]
        forms.append(Session(engine))
        forms[-1].connection(execution_options=option)
        for form in forms:
            with form as session:
                with pytest.raises(AutocommitError):
                    QUEUE.enqueue(session.connection(), channel="a", payload=1)
                QUEUE.enqueue(session, channel="a", payload=1)
                with pytest.raises(AutocommitError):
                    session.commit()
                session.rollback()
    assert database.value("select count(*) from fq_channel") == 0


def test_connections(engine: Engine, autocommit_engine: Engine, database: Database) -> None:
    """A connection in AUTOCOMMIT is refused by every verb that works in the caller's transaction."""
    with autocommit_engine.connect() as one, engine.connect().execution_options(isolation_level=AUTOCOMMIT) as other:
        for connection in (one, other):
            for verb in (
                lambda given: QUEUE.enqueue(given, channel="a", payload=1).message_id,
                lambda given: QUEUE.cancel(given, 1),
                lambda given: QUEUE.configure(given, defaults=QUEUE.defaults),
                lambda given: QUEUE.configure_channel(given, "a", QUEUE.defaults),
            ):
                with pytest.raises(AutocommitError):
                    verb(connection)
    assert database.value("select count(*) from fq_channel") == 0


def test_password_is_not_told(database: Database) -> None:
    """The error names the engine without its password."""
    engine = create_engine(database.url.set(password="secret"), isolation_level=AUTOCOMMIT)  # noqa: S106 - not one
    with engine.connect() as connection, pytest.raises(AutocommitError) as caught:
        QUEUE.enqueue(connection, channel="a", payload=1)
    engine.dispose()
    assert "secret" not in str(caught.value)


def test_engines_serve_in_autocommit(autocommit_engine: Engine, database: Database) -> None:
    """Calls that are one statement on an engine may use such an engine, and those that are several may not."""
    QUEUE.enqueue(autocommit_engine, channel="a", payload=1)
    with pytest.raises(AutocommitError):
        QUEUE.cancel(autocommit_engine, 1)
    with pytest.raises(AutocommitError):
        QUEUE.configure_channel(autocommit_engine, "a", QUEUE.defaults)
    [delivery] = QUEUE.dequeue(autocommit_engine)
    QUEUE.extend(autocommit_engine, delivery)
    QUEUE.complete(autocommit_engine, delivery)
    assert channels(database) == []
