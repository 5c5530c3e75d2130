"""A queue that is not installed, elsewhere, or of another version is an error that says what to do."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue, SchemaMismatch
from sqlalchemy_fairqueue.database.drivers import driver_of
from sqlalchemy_fairqueue.sql.files import latest_version
from tests.fixtures.database import Database

CREATE = rf"put op\.create_fairqueue\(version={latest_version()}{{schema}}\) into .*Queue\(schema=\.\.\.\)"
ADVICE = CREATE.format(schema="")


def _commit(queue: Queue, engine: Engine) -> None:
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        session.commit()


def _commit_cancel(queue: Queue, engine: Engine) -> None:
    with Session(engine) as session:
        queue.cancel(session, 1)
        session.commit()


CALLS: list[Callable[[Queue, Engine], Any]] = [
    _commit,
    _commit_cancel,
    lambda queue, engine: queue.dequeue(engine),
    lambda queue, engine: queue.cancel(engine, 1),
    lambda queue, engine: queue.configure(engine, defaults=queue.defaults),
    lambda queue, engine: queue.configure_channel(engine, "a", queue.defaults),
]


def test_not_installed(queue: Queue, empty_database: Database) -> None:
    """Every call on a database without the queue says how to install it."""
    engine = create_engine(empty_database.url)
    for call in CALLS:
        with pytest.raises(SchemaMismatch, match=ADVICE):
            call(queue, engine)
    engine.dispose()


def test_wrong_schema(engine: Engine) -> None:
    """Every call on a schema that does not exist, or has no queue, names it."""
    for schema in ("nowhere", "information_schema"):
        for call in CALLS:
            with pytest.raises(SchemaMismatch, match=CREATE.format(schema=f", schema='{schema}'")):
                call(Queue("documents", schema=schema), engine)


def test_session_is_usable_afterwards(queue: Queue, engine: Engine, database: Database) -> None:
    """After a rollback the session that met it works on, and nothing of it is left."""
    with Session(engine) as session:
        queue.enqueue(session, channel="lost", payload=1)
        Queue("documents", schema="nowhere").enqueue(session, channel="lost", payload=1)
        with pytest.raises(SchemaMismatch):
            session.commit()
        session.rollback()
        queue.enqueue(session, channel="kept", payload=1)
        session.commit()
    assert database.value("select string_agg(name, ' ') from fq_channel") == "kept"


def test_half_an_installation(queue: Queue, engine: Engine, database: Database) -> None:
    """A function of another signature is a mismatch too."""
    database.execute("drop function fq_enqueue")
    database.execute("create function fq_enqueue(p_queue text) returns int language sql as 'select 1'")
    with pytest.raises(SchemaMismatch, match=ADVICE):
        _commit(queue, engine)


def test_a_function_without_its_table(queue: Queue, engine: Engine, database: Database) -> None:
    """What is installed is not advised to be installed: what a function misses was renamed, or is gone."""
    database.execute("drop table fq_message cascade")
    with pytest.raises(
        SchemaMismatch, match=r"fq_message.* does not exist; .*op\.repair_fairqueue\(.*find_drift\(\)"
    ) as caught:
        _commit(queue, engine)
    assert "create_fairqueue" not in str(caught.value)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg_async"])
def test_names_of_the_driver(driver: str) -> None:
    """The driver is taken by each name that SQLAlchemy has for it."""
    driver_of(create_engine(f"postgresql+{driver}://"))
