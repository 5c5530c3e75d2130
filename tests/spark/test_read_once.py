"""Reads of a history: a report goes through it once, and keeps what it computes until it is done."""

import re
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.spark import Scenario, replays, report
from tests.spark.conftest import installed
from tests.spark.recorded import add
from tests.spark.report_history import frame, nasty

pytestmark = pytest.mark.timeout(900)

_COPY = re.compile(r"statement: copy \(.*?from \S*(fq_\w+)", re.IGNORECASE | re.DOTALL)


def test_replays_and_a_report_read_a_live_history_once_each(
    spark: SparkSession, private_server: Callable[..., Server]
) -> None:
    """One COPY of the history makes all replays, another one the report; one of the channels makes its policies. A
    report that replays needs no more, and a persisted history is left persisted, so that a second report reads nothing.
    """
    server = private_server(settings={"log_statement": "all"})
    database = installed(server)
    add(database, 300)

    def counted() -> tuple[int, int]:
        """How many COPYs the server has sent of the history, and of the channels."""
        found = _COPY.findall(server.log_path.read_text(errors="replace"))
        return found.count("fq_history"), found.count("fq_channel")

    # Frames that are read anew whenever they are used.
    history, channels = (
        spark.read.format("fairqueue").options(dsn=database.conninfo, table=table).load()
        for table in ("history", "channels")
    )
    lines = [Scenario(name="one line", discipline="fifo")]
    found = replays(history, lines)
    assert counted() == (1, 0)

    made = report(history, policies=channels, output=None, replays=found)
    assert sum(channel.attempts for channel in made.figures.channels) == 300
    assert counted() == (2, 1)

    whole = report(history, policies=channels, scenarios=lines, replayed=True, output=None)
    assert [one.name for one in whole.replays] == [one.name for one in found]
    assert counted() == (3, 2)

    history.persist()
    try:
        report(history, output=None)
        assert history.storageLevel.useDisk
        assert history.count() == 300
        assert counted() == (4, 2)
    finally:
        history.unpersist()


def test_one_shuffle_makes_the_figures(spark: SparkSession) -> None:
    """A report runs one collection of the history with one shuffle, and so do all replays together: Spark runs a job
    for the shuffle and one for what follows. Nothing stays persisted.
    """
    context = spark.sparkContext
    rows = frame(spark, nasty(attempts=30))
    persisted = len(spark.sparkContext._jsc.getPersistentRDDs())
    for name, run in {
        "figures": lambda: report(rows, output=None),
        "report": lambda: report(rows, scenarios=[Scenario(name="two", workers=2)], replayed=True, output=None),
        "replays": lambda: replays(rows, [Scenario(name=f"{number} workers", workers=number) for number in (1, 2, 3)]),
    }.items():
        context.setJobGroup(name, name)
        try:
            run()  # type: ignore[no-untyped-call]
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        tracker = context.statusTracker()
        jobs = tracker.getJobIdsForGroup(name)
        infos = [found for job in jobs if (found := tracker.getJobInfo(job))]
        assert 1 <= len(infos) <= 2, name
        assert len({stage for found in infos for stage in found.stageIds}) <= 3, name
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == persisted
