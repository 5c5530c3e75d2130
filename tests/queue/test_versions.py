"""One library on two versions of the schema, also while the version changes under a running process."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateSchema

from sqlalchemy_fairqueue import ChannelFull, ChannelPolicy, Enqueue, Queue, SchemaMismatch
from sqlalchemy_fairqueue import installation as installations
from sqlalchemy_fairqueue.sql import downgrade_statements, upgrade_statements
from tests.fixtures.connections import Connect
from tests.fixtures.database import SCHEMA_VERSION, Database, MakeDatabase, install

# So often psycopg sends a statement before it has the server prepare it, and some more.
PREPARED = 8
ADVICE = r"needs version 2 of fairqueue's schema, and .* holds version 1; .*op\.upgrade_fairqueue\(1, 2"


@pytest.fixture
def database(make_database: MakeDatabase) -> Database:
    """The test's own database with version 1 installed."""
    if SCHEMA_VERSION == 1:
        return make_database()
    made = make_database(installed=False)
    with create_engine(made.url, poolclass=NullPool).begin() as connection:
        install(connection, version=1)
    return made


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


def _run(database: Database, statements: Iterable[str]) -> None:
    with create_engine(database.url, poolclass=NullPool).begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _upgrade(database: Database) -> None:
    _run(database, upgrade_statements(1, 2, None))


def _downgrade(database: Database) -> None:
    _run(database, downgrade_statements(2, 1, None))


def _commit(queue: Queue, engine: Engine, **message: Any) -> str | None:
    with Session(engine) as session:
        receipt = queue.enqueue(session, channel="a", payload=1, **message)
        session.commit()
    return receipt.outcome


BOUNDED = ChannelPolicy(max_backlog=1)
NEW: dict[str, Callable[[Queue, Any], object]] = {
    "on_duplicate='replace'": lambda queue, where: queue.enqueue_now(
        where, channel="a", payload=1, key="k", on_duplicate="replace"
    ),
    "on_duplicate='raise'": lambda queue, where: queue.enqueue_now(
        where, channel="a", payload=1, key="k", on_duplicate="raise"
    ),
    "max_backlog=1": lambda queue, where: queue.configure_channel(where, "a", BOUNDED),
    "max_backlog=1 by default": lambda queue, where: queue.configure(where, defaults=BOUNDED),
    "max_backlog=1 of the queue": lambda queue, where: Queue(queue.name, defaults=BOUNDED).enqueue_now(
        where, channel="a", payload=1
    ),
    "max_concurrency of a queue": lambda queue, where: queue.configure(where, max_concurrency=1),
    "history": lambda queue, where: queue.configure(where, history=True),
    "pause": lambda queue, where: queue.pause(where),
    "resume": lambda queue, where: queue.resume(where, "a"),
    "purge": lambda queue, where: queue.purge(where, "a"),
    "redrive": lambda queue, where: queue.redrive(where),
    "purge_dead": lambda queue, where: queue.purge_dead(where),
    "stats": lambda queue, where: queue.stats(where),
    "channels": lambda queue, where: queue.channels(where),
}


@pytest.mark.parametrize("feature", NEW)
def test_what_version_1_does_not_have(queue: Queue, connect: Connect, database: Database, feature: str) -> None:
    """A feature of version 2 is refused on version 1 with the migration to write, and the transaction goes on."""
    connection = connect()
    connection.execute(text("create table business (id int)"))
    with pytest.raises(SchemaMismatch, match=ADVICE + r"\)") as caught:
        NEW[feature](queue, connection)
    assert feature.split(maxsplit=1)[0] in str(caught.value)
    connection.execute(text("insert into business values (1)"))
    queue.enqueue_now(connection, channel="kept", payload=1)
    connection.commit()
    assert database.value("select count(*) from business") == 1
    assert database.value("select string_agg(name, ' ') from fq_channel") == "kept"


def test_a_commit_on_version_1(queue: Queue, engine: Engine, database: Database) -> None:
    """A recorded feature of version 2 fails the COMMIT before anything is sent; after a rollback the session works."""
    with Session(engine) as session:
        queue.enqueue(session, channel="lost", payload=1)
        queue.pause(session)
        with pytest.raises(SchemaMismatch, match=ADVICE):
            session.commit()
        session.rollback()
        queue.enqueue(session, channel="kept", payload=1)
        session.commit()
    assert database.value("select string_agg(name, ' ') from fq_channel") == "kept"


def test_the_schema_is_named(engine: Engine) -> None:
    """The migration to write names the schema that is too old."""
    with engine.begin() as connection:
        connection.execute(CreateSchema("Old one"))
        install(connection, schema="Old one", version=1)
    with pytest.raises(SchemaMismatch, match=r"schema 'Old one' holds.*upgrade_fairqueue\(1, 2, schema='Old one'\)"):
        Queue("documents", schema="Old one").pause(engine)


def test_what_version_1_has(queue: Queue, engine: Engine) -> None:
    """What version 1 has works on it as before, with the words of version 2 where it knows them."""
    with Session(engine, twophase=True) as session:
        first = queue.enqueue(session, channel="a", payload=1, key="k")
        second = queue.enqueue(session, channel="a", payload=2, key="k")
        session.commit()
    assert (first.outcome, second.outcome) == ("created", "duplicate")
    [delivery] = queue.dequeue(engine)
    with Session(engine) as session:
        receipts = [queue.cancel(session, one) for one in (delivery.message_id, 10**12)]
        session.commit()
    assert [receipt.outcome for receipt in receipts] == ["leased", "missing"]
    queue.bury(engine, delivery, reason="why")
    [letter] = queue.dead_letters(engine)
    assert (letter.reason, letter.key, letter.payload) == ("why", "k", 1)
    queue.configure(engine, defaults=ChannelPolicy(weight=2, on_full="drop"))
    queue.configure_channel(engine, "a", ChannelPolicy(weight=2))
    with Session(engine) as session:
        third = queue.enqueue(session, channel="a", payload=3)
        session.commit()
    assert queue.cancel(engine, third.message_id or 0).outcome == "cancelled"


def test_asked_once(queue: Queue, engine: Engine, asked: list[str]) -> None:
    """The version is asked once an engine and schema, whatever its execution options, and not by who needs it not."""
    assert queue.dequeue(engine) == []
    assert asked == []
    for _ in range(3):
        _commit(queue, engine)
        _commit(queue, engine.execution_options(logging_token="x"))  # noqa: S106 - no password
        queue.retry(engine, queue.dequeue(engine))
    assert len(asked) == 1


def test_upgraded_meanwhile(
    queue: Queue, engine: Engine, database: Database, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade is noticed at once by a call that needs it, and within a minute by the others; nothing fails."""
    for _ in range(PREPARED):
        _commit(queue, engine)
    for _ in range(PREPARED):
        queue.retry(engine, queue.dequeue(engine))
    [delivery] = queue.dequeue(engine)
    _upgrade(database)
    _commit(queue, engine)
    queue.retry(engine, delivery)
    queue.complete(engine, queue.dequeue(engine, limit=20))
    assert database.value("select count(*) from fq_message") == 0
    assert len(asked) == 1
    queue.pause(engine)
    assert queue.dequeue(engine) == []
    queue.resume(engine)
    assert len(asked) == 2

    other = create_engine(database.url)
    _downgrade(database)
    _commit(queue, other)
    _upgrade(database)
    queue.configure_channel(engine, "full", BOUNDED)
    now = monotonic()
    monkeypatch.setattr(installations, "monotonic", lambda: now + 61)
    with Session(other) as session:
        queue.enqueue_many(session, [Enqueue(channel="full", payload=one) for one in range(2)])
        with pytest.raises(ChannelFull) as caught:
            session.commit()
        session.rollback()
    assert caught.value.channel == "full"
    other.dispose()


def test_full_before_the_upgrade_is_noticed(queue: Queue, engine: Engine, database: Database) -> None:
    """A process that does not know of the upgrade yet meets ChannelFull as well."""
    _commit(queue, engine)
    _upgrade(database)
    database.execute("select fq_configure_channel('documents', 'a', null, 0, 1, 1, 1, false)")
    with pytest.raises(ChannelFull, match="cannot enqueue 1 messages to queue 'documents'"):
        _commit(queue, engine)


def test_downgraded_meanwhile(queue: Queue, engine: Engine, database: Database, connect: Connect) -> None:
    """A downgrade fails one transaction, which says to try again; the next ones work on version 1."""
    _upgrade(database)
    for number in range(PREPARED):
        assert _commit(queue, engine, key=f"k{number}", on_duplicate="replace") == "created"
    _downgrade(database)
    with pytest.raises(SchemaMismatch, match=r"downgraded from version 2 a moment ago, try the transaction again"):
        _commit(queue, engine)
    assert _commit(queue, engine) == "created"
    with pytest.raises(SchemaMismatch, match=ADVICE):
        queue.pause(connect())


@pytest.mark.parametrize("verb", ["retry", "release"])
def test_ends_on_an_engine_outlive_a_downgrade(queue: Queue, engine: Engine, database: Database, verb: str) -> None:
    """On an engine, where nothing of the caller's is at stake, the end of a delivery is sent again by itself."""
    _upgrade(database)
    _commit(queue, engine)
    for _ in range(PREPARED):
        [delivery] = queue.dequeue(engine)
        queue.release(engine, delivery)
    [delivery] = queue.dequeue(engine)
    _downgrade(database)
    getattr(queue, verb)(engine, delivery, delay=timedelta(hours=1))
    assert database.value("select count(*) from fq_message where lease_id is null") == 1


def test_two_versions_in_one_transaction(queue: Queue, engine: Engine) -> None:
    """Schemas of different versions are served by one session, each by its own."""
    with engine.begin() as connection:
        connection.execute(CreateSchema("newer"))
        install(connection, schema="newer", version=2)
    newer = Queue("documents", schema="newer")
    with Session(engine) as session:
        old = queue.enqueue(session, channel="a", payload=1, key="k")
        new = newer.enqueue(session, channel="a", payload=1, key="k", on_duplicate="replace")
        newer.pause(session, "a")
        session.commit()
    assert (old.outcome, new.outcome) == ("created", "created")
    assert len(queue.dequeue(engine)) == 1
    assert newer.dequeue(engine) == []


def test_require(engine: Engine) -> None:
    """The check that the rest is built on names the feature; one that is there passes."""
    with engine.connect() as connection:
        assert installations.version_of(connection, None) == 1
        installations.require(connection, None, 1, "anything")
        with pytest.raises(SchemaMismatch, match=r"^this and that needs version 2"):
            installations.require(connection, None, 2, "this and that")
        assert _one(connection) == 1


def _one(connection: Connection) -> int:
    return int(connection.execute(text("select 1")).scalar_one())
