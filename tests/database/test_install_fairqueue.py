"""install_fairqueue: fairqueue in a database without a project of Alembic's."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from sqlalchemy_fairqueue import Queue, SchemaMismatch, install_fairqueue
from sqlalchemy_fairqueue.errors import AutocommitError, IsolationError
from sqlalchemy_fairqueue.sql import find_drift
from tests.fixtures.database import Database
from tests.worker.helpers import until

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import IsolationLevel

pytestmark = pytest.mark.installed


@pytest.fixture
def bare(empty_database: Database) -> Iterator[Engine]:
    """An engine on a database without the library."""
    engine = create_engine(empty_database.url, poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("schema", [None, 'it\'s "odd"'])
def test_installs_what_is_missing(bare: Engine, schema: str | None) -> None:
    """The first call installs, into a schema that it makes; the next one finds it there and changes nothing."""
    assert install_fairqueue(bare, schema) is True
    assert install_fairqueue(bare, schema=schema) is False
    with bare.connect() as connection:
        assert find_drift(connection, schema) == []
    queue = Queue("documents", schema=schema)
    assert queue.enqueue(bare, channel="a", kind="parse", payload=1).message_id


def test_an_engine_that_commits_each_statement(bare: Engine) -> None:
    """An engine of any isolation level is used in a transaction; a connection in AUTOCOMMIT is refused."""
    autocommit = bare.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection, pytest.raises(AutocommitError, match="give the engine"):
        install_fairqueue(connection)
    assert install_fairqueue(autocommit)


def test_isolation_levels(bare: Engine) -> None:
    """It installs on an engine and on a connection of any level, also in a transaction that has begun."""
    levels: list[IsolationLevel] = ["REPEATABLE READ", "SERIALIZABLE"]
    for level, schema in zip(levels, (None, "queue"), strict=True):
        with bare.execution_options(isolation_level=level).connect() as connection:
            connection.exec_driver_sql("select 1")
            assert install_fairqueue(connection, schema)
    assert install_fairqueue(bare.execution_options(isolation_level="SERIALIZABLE"), "queue")


def test_a_read_only_transaction(bare: Engine, empty_database: Database) -> None:
    """A transaction that may not write says what makes it so, and of whichever part of the installation."""
    by_the_engine = bare.execution_options(postgresql_readonly=True)
    says = r"install_fairqueue: .* read-only transaction; connect to the primary"
    for schema in None, "queue":
        with pytest.raises(IsolationError, match=says):
            install_fairqueue(by_the_engine, schema)
    empty_database.execute(f'alter database "{empty_database.name}" set default_transaction_read_only to on')
    for schema in None, "queue":
        with pytest.raises(IsolationError, match=says):
            install_fairqueue(bare, schema)


def test_in_a_transaction(bare: Engine, empty_database: Database) -> None:
    """On a connection it is part of its transaction."""
    with bare.connect() as connection:
        assert install_fairqueue(connection)
    assert empty_database.value("select to_regclass('fq_channel')::text") is None


async def test_asynchronous(empty_database: Database) -> None:
    """On a connection of an asynchronous engine."""
    engine = create_async_engine(empty_database.url)
    async with engine.begin() as connection:
        assert await connection.run_sync(install_fairqueue)
    async with engine.begin() as connection:
        assert not await connection.run_sync(install_fairqueue, schema=None)
    await engine.dispose()


def test_at_once(bare: Engine) -> None:
    """Of several that begin together exactly one installs, into a schema that it makes, and none fails."""
    schema = "queue"
    together = Barrier(4)

    def install() -> bool:
        together.wait()
        return install_fairqueue(bare, schema)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(future.result() for future in [pool.submit(install) for _ in range(4)]) == [False] * 3 + [True]
    with bare.connect() as connection:
        assert find_drift(connection, schema) == []


def test_behind_another_installation(bare: Engine, empty_database: Database) -> None:
    """One that waits for another's installation finds it when that is committed."""
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with bare.connect() as first, ThreadPoolExecutor(1) as pool:
        assert install_fairqueue(first)
        second = pool.submit(install_fairqueue, bare)
        until(lambda: empty_database.value(waiting), "the second one waits")
        first.commit()
        assert second.result() is False


def test_an_older_version(database: Database) -> None:
    """Where an older version stands, the error holds the migration to write, and nothing is changed."""
    database.execute("create or replace function fq_version() returns smallint immutable language sql as 'select 0'")
    with pytest.raises(SchemaMismatch, match=r"put op.upgrade_fairqueue\(0, 1\) into an Alembic"):
        install_fairqueue(database.own.execution_options(isolation_level="READ COMMITTED"))


def test_names_that_are_taken(bare: Engine, empty_database: Database) -> None:
    """Objects of the user's under names that are needed are named."""
    empty_database.execute("create table fq_message (id int)")
    with pytest.raises(SchemaMismatch, match="not fairqueue's under names that it needs: fq_message"):
        install_fairqueue(bare)
    assert not empty_database.value("select to_regclass('fq_channel')::text")
