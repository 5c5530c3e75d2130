"""``trend``: the rows and the document have the samples."""

from datetime import timedelta

from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, enqueue, lease
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database


def test_trend(cli: Cli, engine: Engine, database: Database, clock: Clock) -> None:
    """A row a sample with a bar of the backlog, then a row a kind; the document has each step, null where none is."""
    assert cli("trend", "--queue", "nobody").status == 1
    QUEUE.configure(engine, history=True)
    assert "no worker has kept a sample" in cli("trend").out
    for channel in ("a", "b"):
        enqueue(engine, channel, kind="parse")
        clock.advance(timedelta(minutes=1))
        database.value(f"select fq_keep_samples('{{{QUEUE.name}}}')")
    QUEUE.complete(engine, lease(engine, 1))
    clock.advance(timedelta(minutes=1))
    database.value(f"select fq_keep_samples('{{{QUEUE.name}}}')")

    headings, *rows, kinds, parse = cli("trend", "--over", "30m").rows()

    assert headings == ["at (UTC)", "ready", "oldest wait", "served", "failed", "backlog"]
    assert [(row[1], row[3], row[4]) for row in rows] == [("1", "-", "-"), ("2", "0", "0"), ("1", "1", "0")]
    assert [len(row[5]) for row in rows] == [10, 20, 10]
    assert kinds == ["kind", "attempts", "half within", "95% within"]
    assert parse[:2] == ["parse", "1"]
    document = cli("trend", "a", "--over", "1d", "--json").document
    assert (document["queue"], document["channel"], document["step_seconds"]) == (QUEUE.name, "a", 900)
    assert len(document["points"]) == 96
    assert document["points"][0]["ready"] is None
    assert max(point["ready"] or 0 for point in document["points"]) == 1
    assert sum(point["served"] or 0 for point in document["points"]) == 1
    assert [one["kind"] for one in document["handlers"]] == ["parse"]
    assert sum(document["handlers"][0]["counts"]) == document["handlers"][0]["attempts"] == 1
    assert cli("trend", "nobody").status == 1
    assert cli("trend", "--over", "2d").status == 2
