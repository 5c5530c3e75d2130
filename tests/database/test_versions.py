"""Versions of the schema: an older one than the library needs is refused, a newer one is served."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateSchema

from sqlalchemy_fairqueue import Delivery, Queue, SchemaMismatch
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION
from sqlalchemy_fairqueue.sql.schema import quoted
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database, install

OLDER = NEEDED_VERSION - 1
ADVICE = (
    rf"^the connection's default schema holds version {OLDER} of fairqueue's schema, and this library needs version "
    rf"{NEEDED_VERSION}; put op\.upgrade_fairqueue\({OLDER}, {NEEDED_VERSION}\) into an Alembic migration and run it$"
)


def say(database: Database, version: int, schema: str = "public") -> None:
    """Let an installation say that it is of another version."""
    function = f"create or replace function {quoted(schema)}.fq_version() returns smallint"
    database.execute(f"{function} immutable language sql as 'select {version}'")


@pytest.fixture
def asked(engine: Engine) -> Iterator[list[str]]:
    """Every question for the version that is sent on the engine."""
    sent: list[str] = []

    def note(*given: Any) -> None:
        if "fq_version" in given[2]:
            sent.append(given[2])

    event.listen(engine, "before_cursor_execute", note)
    yield sent
    event.remove(engine, "before_cursor_execute", note)


def taken(queue: Queue, database: Database) -> Delivery:
    """A message that was taken while the version was right, on an engine of the test's own."""
    queue.enqueue(database.own, channel="a", payload=1)
    [one] = queue.dequeue(database.own)
    return one


def _commit(queue: Queue, engine: Engine) -> None:
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        session.commit()


ON_A_CONNECTION: dict[str, Callable[[Queue, Any, Delivery], object]] = {
    "enqueue": lambda queue, where, _: queue.enqueue(where, channel="a", payload=1).message_id,
    "complete": lambda queue, where, delivery: queue.complete(where, delivery),
    "retry": lambda queue, where, delivery: queue.retry(where, delivery),
    "cancel": lambda queue, where, _: queue.cancel(where, 1),
    "configure": lambda queue, where, _: queue.configure(where, max_concurrency=1),
    "configure_channel": lambda queue, where, _: queue.configure_channel(where, "a", queue.defaults),
    "pause": lambda queue, where, _: queue.pause(where),
    "purge": lambda queue, where, _: queue.purge(where, "a"),
    "stats": lambda queue, where, _: queue.stats(where),
    "channels": lambda queue, where, _: queue.channels(where),
    "dead_letters": lambda queue, where, _: queue.dead_letters.list(where),
    "redrive": lambda queue, where, _: queue.dead_letters.redrive(where),
    "purge_dead": lambda queue, where, _: queue.dead_letters.purge(where),
}
ON_AN_ENGINE: dict[str, Callable[[Queue, Any, Delivery], object]] = ON_A_CONNECTION | {
    "commit": lambda queue, where, _: _commit(queue, where),
    "dequeue": lambda queue, where, _: queue.dequeue(where),
    "extend": lambda queue, where, delivery: queue.extend(where, delivery),
}


def test_an_older_version(queue: Queue, engine: Engine, database: Database) -> None:
    """Every call on an engine says which version is there, which is needed, and the migration to write."""
    delivery = taken(queue, database)
    say(database, OLDER)
    before = database.rows("select * from fq_message")
    for call in ON_AN_ENGINE.values():
        with pytest.raises(SchemaMismatch, match=ADVICE):
            call(queue, engine, delivery)
    assert database.rows("select * from fq_message") == before


def test_an_older_version_in_a_transaction(queue: Queue, connect: Connect, database: Database) -> None:
    """A call in a transaction is refused before anything of it is sent, and the transaction goes on."""
    delivery = taken(queue, database)
    say(database, OLDER)
    connection = connect()
    connection.execute(text("create table business (id int)"))
    for call in ON_A_CONNECTION.values():
        with pytest.raises(SchemaMismatch, match=ADVICE):
            call(queue, connection, delivery)
        connection.execute(text("insert into business values (1)"))
    connection.commit()
    assert database.value("select count(*) from business") == len(ON_A_CONNECTION)


async def test_an_older_version_awaited(queue: Queue, async_engine: AsyncEngine, database: Database) -> None:
    """On an async engine it is the same."""
    say(database, OLDER)
    for call in (queue.dequeue(async_engine), queue.enqueue(async_engine, channel="a", payload=1)):
        with pytest.raises(SchemaMismatch, match=ADVICE):
            await call
    with pytest.raises(SchemaMismatch, match=ADVICE):
        await queue.stats(async_engine)


def test_a_session_goes_on_after_a_rollback(queue: Queue, engine: Engine, database: Database) -> None:
    """A transaction that has work for an older schema too fails whole, whatever the others are."""
    with engine.begin() as connection:
        connection.execute(CreateSchema("Old one"))
        install(connection, schema="Old one")
    say(database, OLDER, "Old one")
    with Session(engine) as session:
        queue.enqueue(session, channel="lost", payload=1)
        Queue("documents", schema="Old one").enqueue(session, channel="lost", payload=1)
        upgrade = rf"op\.upgrade_fairqueue\({OLDER}, {NEEDED_VERSION}, schema='Old one'\)"
        with pytest.raises(SchemaMismatch, match=rf"^schema 'Old one' holds version {OLDER} .*{upgrade}"):
            session.commit()
        session.rollback()
        queue.enqueue(session, channel="kept", payload=1)
        session.commit()
    assert database.value("select string_agg(name, ' ') from fq_channel") == "kept"


def test_migrated_meanwhile(queue: Queue, engine: Engine, database: Database) -> None:
    """A process that met an older version works as soon as the database is migrated."""
    say(database, OLDER)
    with pytest.raises(SchemaMismatch):
        _commit(queue, engine)
    say(database, NEEDED_VERSION)
    _commit(queue, engine)
    [delivery] = queue.dequeue(engine)
    queue.complete(engine, delivery)
    assert database.value("select count(*) from fq_message") == 0


def test_a_newer_version(engine: Engine, database: Database) -> None:
    """A version that the library does not know is served: databases are migrated before the code is rolled out."""
    deliveries = {name: taken(Queue(name), database) for name in ON_AN_ENGINE}
    say(database, 99)
    for name, call in ON_AN_ENGINE.items():
        call(Queue(name), engine, deliveries[name])


def test_asked_once(queue: Queue, engine: Engine, asked: list[str]) -> None:
    """The version is asked once an engine and schema, whatever its execution options."""
    for _ in range(3):
        _commit(queue, engine)
        _commit(queue, engine.execution_options(logging_token="x"))  # noqa: S106 - no password
        queue.retry(engine, queue.dequeue(engine))
        queue.stats(engine)
    assert len(asked) == 1
    Queue("documents", schema="public").stats(engine)
    assert len(asked) == 2
