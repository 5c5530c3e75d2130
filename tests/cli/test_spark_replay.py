from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, enqueue, lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

_SCENARIOS = """
[[scenario]]
name = "one at a time"
workers = 1
[[scenario]]
name = "one <line>"
discipline = "fifo"
"""


def test_replay(cli: Cli, engine: Engine, spark: "SparkSession", tmp_path: Path) -> None:
    """The page shows each scenario beside what was, and the answer has the figures of both."""
    assert spark.version
    QUEUE.configure(engine, history=True)
    enqueue(engine, "customer-1", "customer-1", "customer-2")
    QUEUE.complete(engine, lease(engine))
    (tmp_path / "scenarios.toml").write_text(_SCENARIOS)

    made = cli("spark", "replay", "scenarios.toml", "--output", "page.html", "--json")

    assert made.status == 0, made.err
    named = {one["scenario"]: one["queues"] for one in made.document["scenarios"]}
    assert list(named) == ["as recorded", "as recorded, replayed", "one at a time", "one <line>"]
    assert [queue["attempts"] for (queue,) in named.values()] == [3, 3, 3, 3]
    assert [queue["greatest_concurrency"] for (queue,) in named.values()] == [3, 3, 1, 3]
    replayed = {one["scenario"]: one["replayed"] for one in made.document["scenarios"]}
    assert [one["workers"] for (one,) in list(replayed.values())[1:]] == [3, 1, 3]
    assert [one["estimated"] for (one,) in list(replayed.values())[1:]] == [True, False, True]
    assert replayed["as recorded, replayed"][0]["replay_error"] is not None
    assert "one &lt;line&gt;" in (tmp_path / "page.html").read_text()
