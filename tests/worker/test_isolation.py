"""Workers where the server's default isolation is a strict one."""

from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event

from sqlalchemy_fairqueue import Queue, Worker
from sqlalchemy_fairqueue.worker.duties import Housekeeping
from tests.fixtures.database import Database
from tests.worker.helpers import drained, is_empty, send, until

_STRICT = {"options": "-c default_transaction_isolation=serializable"}


@pytest.fixture
def strict(database: Database) -> Engine:
    """An engine on the test's database, for which the default is SERIALIZABLE."""
    return create_engine(database.url, connect_args=_STRICT, poolclass=NullPool)


def test_a_worker(queue: Queue, engine: Engine, strict: Engine, database: Database, seen: list[object]) -> None:
    """It asks for READ COMMITTED, takes, and what it settles stays settled; so do its chores what they make."""
    days = "select count(*) from pg_inherits where inhparent = cast('fq_history' as regclass)"
    before = database.value(days)
    send(engine, queue, *range(10))
    assert drained(strict, queue).stats.completed == len(seen) == 10
    assert is_empty(database)
    Housekeeping(Worker(strict, queue)._options).run()
    assert database.value(days) > before


@pytest.mark.parametrize("how", ["database", "session"])
def test_a_default_that_changed_after_the_first_connection(queue: Queue, database: Database, how: str) -> None:
    """What SQLAlchemy has read of the server once is not what a worker relies on."""
    engine = create_engine(database.url)
    engine.connect().close()
    if how == "database":
        database.execute(f"alter database \"{database.name}\" set default_transaction_isolation = 'serializable'")
        engine.dispose()
    else:

        @event.listens_for(engine, "connect")
        def set_up(connection: Any, _: object) -> None:
            connection.execute("set session characteristics as transaction isolation level repeatable read")
            connection.commit()

    queue.handler()(lambda _: None)
    queue.enqueue(engine, channel="a", payload=1)
    with Worker(engine, queue) as worker:
        until(lambda: worker.stats.completed == 1, "it is done")
    assert worker.stats.failures == 0
    engine.dispose()
