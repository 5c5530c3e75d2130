"""Doctor's findings of channels that are set aside, and of states that stand twice, with its statements."""

import pytest
from sqlalchemy import Engine

from tests.cli.messages import QUEUE, Findings, Repair, enqueue, lease, levels
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


@pytest.mark.parametrize(
    ("table", "where", "version"),
    [
        ("fq_channel_state", "true", -1),
        ("fq_queue_state", "true", 0),
        ("fq_limit_share", "queue = ''", 1000),
        ("fq_limit_share", "queue = 'documents'", 1000),
    ],
)
def test_two_states(
    findings: Findings, repair: Repair, engine: Engine, database: Database, *, table: str, where: str, version: int
) -> None:
    """Two of a channel, of a queue or of a shared limit are a problem, for who examines the queue, until the newest
    alone is left; the limit holds then.
    """
    if table == "fq_channel_state":
        QUEUE.configure_channel(engine, "a", max_concurrency=2)
    elif table == "fq_queue_state":
        QUEUE.configure(engine, max_concurrency=2)
    else:
        QUEUE.limits.configure(engine, "api", max_concurrency=2)
        QUEUE.configure(engine, limits=["api"])
    enqueue(engine, "a", "a", "a")
    assert len(lease(engine, 1)) == 1
    assert levels(findings("states")) == ["ok"]
    newest = database.value(f"select row_version from {table} where {where}")
    # The older row has another count, by which the limit would let a third one out.
    repeat(database, table, where, row_version=version, **({"current_concurrency": 0} if version < newest else {}))

    [found] = findings("states")

    ids, of = [database.value("select id from fq_channel")], found["values"]
    assert (of.get("limit"), of.get("queue")) == (("api", None) if "limit" in table else (None, "documents"))
    assert of.get("channel_ids", ids) == ids
    assert ("for queue 'documents'" in found["message"]) == ("documents" in where)
    assert levels(findings("states", "--queue", "documents")) == [found["level"]] == ["problem"]
    assert levels(findings("states", "--queue", "another")) != ["problem"]
    repair("states")
    assert database.value(f"select row_version from {table} where {where}") == max(newest, version)
    assert len(lease(engine)) == 1
