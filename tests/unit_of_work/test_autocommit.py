"""AUTOCOMMIT is refused before anything is sent, however it was asked for."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
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


def _by_engine(engine: Engine, autocommit_engine: Engine) -> Session:
    del engine
    return Session(autocommit_engine)


def _by_engine_option(engine: Engine, autocommit_engine: Engine) -> Session:
    del autocommit_engine
    return Session(engine.execution_options(isolation_level=AUTOCOMMIT))


def _by_session_connection(engine: Engine, autocommit_engine: Engine) -> Session:
    del autocommit_engine
    session = Session(engine)
    session.connection(execution_options={"isolation_level": AUTOCOMMIT})
    return session


def _by_connection(engine: Engine, autocommit_engine: Engine) -> Session:
    del autocommit_engine
    return Session(engine.connect().execution_options(isolation_level=AUTOCOMMIT))


def test_sessions(engine: Engine, autocommit_engine: Engine, database: Database) -> None:
    """A session in AUTOCOMMIT fails its commit, or its immediate enqueue, with nothing sent."""
    for form in (_by_engine, _by_engine_option, _by_session_connection, _by_connection):
        with form(engine, autocommit_engine) as session:
            with pytest.raises(AutocommitError, match="without isolation_level='AUTOCOMMIT'"):
                QUEUE.enqueue(session.connection(), channel="a", payload=1)
            QUEUE.enqueue(session, channel="a", payload=1)
            with pytest.raises(AutocommitError):
                session.commit()
            session.rollback()
            bind = session.get_bind()
        if isinstance(bind, Connection):
            bind.close()
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


async def test_async_session(database: Database) -> None:
    """An AsyncSession in AUTOCOMMIT fails its commit with nothing sent."""
    engine = create_async_engine(database.url, isolation_level=AUTOCOMMIT)
    async with AsyncSession(engine) as session:
        QUEUE.enqueue(session, channel="a", payload=1)
        with pytest.raises(AutocommitError):
            await session.commit()
        await session.rollback()
        with pytest.raises(AutocommitError):
            await QUEUE.enqueue(await session.connection(), channel="a", payload=1)
    await engine.dispose()
    assert channels(database) == []
