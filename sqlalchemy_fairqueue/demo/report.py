"""The data pipeline in small: the history of the fair queue becomes an archive, and that a fairness report.

Spark runs in this machine's Java, or in one that comes from PyPI. The report has a replay beside it: the same files,
first come, first served, as a simulator of the queue has it; what the other half of the demo does for real.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from sqlalchemy import Engine

_TITLE = "Bob and the ten others: how fair it was"


def check_spark() -> None:
    """Raise what would be raised when it is too late to be of use.

    Raises:
        DemoError: Spark is not installed.
    """
    try:
        import jinja2  # noqa: F401, PLC0415 - only a report needs these
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        problem = f"a report needs Spark: {error}; pip install 'sqlalchemy-fairqueue[demo,spark]'"
        raise DemoError(problem) from error


def make_report(engine: Engine, page: Path) -> int:
    """Archive the history of a database, make a report of the archive, and return how many attempts it is of.

    Args:
        engine: The database.
        page: Where the report is written.
    """
    from sqlalchemy_fairqueue.spark import Scenario, replays, report  # noqa: PLC0415 - imports Spark
    from sqlalchemy_fairqueue.spark.archiving import archive, read_archive  # noqa: PLC0415

    dsn = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with tempfile.TemporaryDirectory(prefix="fairqueue-") as folder, _spark(folder) as spark:
        done = archive(spark, f"{folder}/archive", dsn=dsn, today=True)
        history = read_archive(spark, f"{folder}/archive")
        policies = spark.read.format("fairqueue").option("dsn", dsn).option("table", "channels").load()
        fifo = Scenario(name="first come, first served", discipline="fifo")
        compared = replays(history, [fifo], policies=policies)
        report(history, policies=policies, output=page, title=_TITLE, replays=compared)
    return done.rows


@contextlib.contextmanager
def _spark(folder: str) -> Iterator[SparkSession]:
    """A session whose files all lie in *folder*."""
    from sqlalchemy_fairqueue.spark import register  # noqa: PLC0415 - imports Spark
    from sqlalchemy_fairqueue.spark.java import session  # noqa: PLC0415

    with _silence():
        started = session(
            "fairqueue demo",
            **{
                "spark.local.dir": f"{folder}/local",
                "spark.sql.warehouse.dir": f"{folder}/warehouse",
                "spark.sql.artifact.isolation.enabled": "false",
                "spark.driver.extraJavaOptions": f"-XX:-UsePerfData -Djava.io.tmpdir={folder}",
                "spark.log.level": "OFF",
            },
        )
    try:
        register(started)
        yield started
    finally:
        started.stop()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Give what is started in this block no stderr: Java greets there, and means nothing by it."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
