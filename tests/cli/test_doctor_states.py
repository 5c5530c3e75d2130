"""Doctor's findings of channels that are set aside, and of states that stand twice, with its statements."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, create_engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from tests.cli.messages import QUEUE, Findings, enqueue, lease, levels
from tests.fixtures.database import Database
from tests.queue.damage import lose


def repeat(database: Database, table: str, where: str = "true", **values: int) -> None:
    """Insert the first such row of a table again with other values, as a damaged or restored table may have it."""
    columns = [row.name for row in database.rows(
        f"select attname as name from pg_attribute where attrelid = '{table}'::regclass and attnum > 0"
    )]  # fmt: skip
    shown = (str(values.get(name, f"s.{name}")) for name in columns)
    database.execute(f"insert into {table} select {', '.join(shown)} from {table} s where {where} limit 1")


def test_a_channel_that_is_set_aside(findings: Findings, engine: Engine, database: Database) -> None:
    """It is told with the message that cannot be delivered and why, until it is withdrawn and the channel resumed."""
    bad, _ = enqueue(engine, "a", "a")
    lose(database, bad)
    assert lease(engine) == []

    [found] = findings("states")

    assert (found["level"], found["values"]["channel"]) == ("warning", "a")
    assert f"message {bad} is set aside, for it cannot be delivered" in found["values"]["problem"]
    QUEUE.cancel(engine, bad)
    QUEUE.resume(engine, channel="a")
    assert levels(findings("states")) == ["ok"]
    assert len(lease(engine)) == 1


def test_two_states_of_a_channel(
    findings: Findings, repair: Callable[[str], None], engine: Engine, database: Database
) -> None:
    """They are a problem until the state is made anew from the messages; its limit holds then."""
    QUEUE.configure_channel(engine, "a", ChannelPolicy(max_concurrency=2))
    enqueue(engine, "a", "a", "a")
    assert len(lease(engine, 1)) == 1
    assert levels(findings("states")) == ["ok"]
    repeat(database, "fq_channel_state", current_concurrency=0, row_version=1)

    [found] = findings("states")

    assert (found["level"], found["values"]["queue"]) == ("problem", "documents")
    assert found["values"]["channel_ids"] == [database.value("select id from fq_channel")]
    assert findings("states", "--queue", "another")[0]["level"] != "problem"
    repair("states")
    assert len(lease(engine)) == 1


def test_two_states_of_a_queue(
    findings: Findings, repair: Callable[[str], None], engine: Engine, database: Database
) -> None:
    """They are a problem until the state is made anew from the messages; the queue's limit holds then."""
    QUEUE.configure(engine, max_concurrency=2)
    enqueue(engine, "a", "b", "c")
    assert len(lease(engine, 1)) == 1
    assert levels(findings("states")) == ["ok"]
    repeat(database, "fq_queue_state", current_concurrency=0, row_version=1000)

    [found] = findings("states")

    assert (found["level"], found["values"]) == ("problem", {"queue": "documents", "rows": 2})
    assert found["message"] == "queue 'documents' has 2 state rows; its limit does not hold"
    repair("states")
    assert len(lease(engine)) == 1


def test_two_states_of_a_queue_one_of_which_is_locked(engine: Engine, database: Database) -> None:
    """While a dequeue has the newest one, nothing is made anew, and no freed slot is lost: the next try does it."""
    QUEUE.configure(engine, max_concurrency=1)
    enqueue(engine, "a", "b")
    QUEUE.complete(engine, lease(engine))
    repeat(database, "fq_queue_state", row_version=1000)
    with engine.connect() as connection:
        connection.exec_driver_sql("select from fq_queue_state where row_version = 1000 for no key update")
        assert database.value("select fq_repair_queue('documents')") is False
        connection.rollback()
    assert database.value("select count(*) from fq_queue_state") == 2
    assert database.value("select sum(queue_freed) from fq_signal") == 1
    assert database.value("select fq_repair_queue('documents')") is True
    assert len(lease(engine)) == 1


@pytest.mark.parametrize("of", ["", "documents"])
def test_two_states_of_a_shared_limit(
    findings: Findings, repair: Callable[[str], None], engine: Engine, database: Database, of: str
) -> None:
    """They are a problem, told to who examines a queue of the limit, until the newest row alone is left."""
    QUEUE.limits.configure(engine, "api", max_concurrency=2)
    QUEUE.configure(engine, limits=["api"])
    enqueue(engine, "a", "b", "c")
    assert len(lease(engine, 1)) == 1
    repeat(database, "fq_limit_share", f"queue = '{of}'", row_version=1000)

    [found] = findings("states")

    assert (found["level"], found["values"]) == ("problem", {"limit": "api", "rows": 2})
    assert ("rows for queue 'documents'" in found["message"]) == (of == "documents")
    assert levels(findings("states", "--queue", "documents")) == ["problem"]
    assert levels(findings("states", "--queue", "another")) != ["problem"]
    repair("states")
    assert database.value(f"select row_version from fq_limit_share where queue = '{of}'") == 1000
    assert len(lease(engine)) == 1


def test_a_queue_whose_slots_are_miscounted(engine: Engine, database: Database) -> None:
    """fq_repair_queue counts the slots that are held, applies what is freed, and leaves the limit."""
    QUEUE.configure(engine, max_concurrency=3)
    enqueue(engine, *"abcdef")
    held = lease(engine)
    assert len(held) == 3
    QUEUE.complete(engine, held[0])
    freed = "select coalesce(sum(queue_freed), 0) from fq_signal"
    assert database.value(freed) == 1
    database.execute("update fq_queue_state set current_concurrency = 99")

    assert database.value("select fq_repair_queue('documents')") is True

    assert database.value(freed) == 0
    assert (QUEUE.stats(engine).current_concurrency, QUEUE.stats(engine).max_concurrency) == (2, 3)
    assert len(lease(engine)) == 1
    QUEUE.complete(engine, held[1:])
    assert len(lease(engine)) == 2


def test_a_limit_that_is_another(engine: Engine, database: Database) -> None:
    """A limit that somebody has written becomes the configured one."""
    QUEUE.configure(engine, max_concurrency=1)
    enqueue(engine, "a", "b")
    database.execute("update fq_queue_state set max_concurrency = 99")
    assert database.value("select fq_repair_queue('documents')") is True
    assert len(lease(engine)) == 1


def test_a_locked_queue(engine: Engine, database: Database) -> None:
    """It waits for nobody: the state of a queue that somebody has locked is left alone, also one without a state."""
    assert database.value("select fq_repair_queue('documents')") is False
    QUEUE.configure(engine, max_concurrency=3)
    other = create_engine(database.url)
    with other.begin() as connection:
        connection.exec_driver_sql("select from fq_queue_state for no key update")
        assert database.value("select fq_repair_queue('documents')") is False
    assert database.value("select fq_repair_queue('documents')") is True
    other.dispose()


def test_a_signal_that_somebody_has_locked(engine: Engine, database: Database) -> None:
    """The slots that it frees are counted as held until it is heard."""
    QUEUE.configure(engine, max_concurrency=2)
    enqueue(engine, *"abcd")
    QUEUE.complete(engine, lease(engine))
    locked = create_engine(database.url)
    with locked.connect() as connection:
        connection.exec_driver_sql("select from fq_signal where queue_freed > 0 limit 1 for update")
        assert database.value("select fq_repair_queue('documents')") is True
        assert database.value("select current_concurrency from fq_queue_state") == 2
        connection.rollback()
    locked.dispose()
    assert len(lease(engine)) == 2


def test_a_signal_that_frees_too_much(engine: Engine, database: Database) -> None:
    """A dequeue that fails over it counts the queue's slots anew and goes on."""
    queue = Queue("documents")
    queue.configure(engine, max_concurrency=2)
    enqueue(engine, "a", "b", "c")
    assert len(lease(engine, 1)) == 1
    database.execute(
        "insert into fq_signal (queue, channel_id, freed, queue_freed)"
        " select 'documents', id, -2147483647, f from fq_channel, unnest(array[2147483647, 2147483647]) f"
        " where name = 'a'"
    )
    assert len(queue.dequeue(engine, limit=10)) == 1
    assert database.value("select current_concurrency from fq_queue_state") == 2
    assert queue.dequeue(engine, limit=10) == []
