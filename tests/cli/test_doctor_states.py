"""Doctor's findings of channels that are set aside, and of states that stand twice, with its statements."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy
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
    """They are a problem until the newest alone is left; its limit holds then."""
    QUEUE.configure_channel(engine, "a", ChannelPolicy(max_concurrency=2))
    enqueue(engine, "a", "a", "a")
    assert len(lease(engine, 1)) == 1
    assert levels(findings("states")) == ["ok"]
    repeat(database, "fq_channel_state", current_concurrency=0, row_version=-1)

    [found] = findings("states")

    assert (found["level"], found["values"]["queue"]) == ("problem", "documents")
    assert found["values"]["channel_ids"] == [database.value("select id from fq_channel")]
    assert findings("states", "--queue", "another")[0]["level"] != "problem"
    repair("states")
    assert len(lease(engine)) == 1


def test_two_states_of_a_queue(
    findings: Findings, repair: Callable[[str], None], engine: Engine, database: Database
) -> None:
    """They are a problem until the newest alone is left; the queue's limit holds then."""
    QUEUE.configure(engine, max_concurrency=2)
    enqueue(engine, "a", "b", "c")
    assert len(lease(engine, 1)) == 1
    assert levels(findings("states")) == ["ok"]
    repeat(database, "fq_queue_state", current_concurrency=0, row_version=0)

    [found] = findings("states")

    assert (found["level"], found["values"]) == ("problem", {"queue": "documents", "rows": 2})
    assert found["message"] == "queue 'documents' has 2 state rows; its limit does not hold"
    repair("states")
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
