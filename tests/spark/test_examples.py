"""Docstring of ``register``: its example runs as it stands."""

import doctest
import inspect

from pyspark.sql import SparkSession
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.spark import register
from tests.fixtures.database import Database


def test_the_example_runs(spark: SparkSession, database: Database, engine: Engine) -> None:
    """The data source reads a table of a queue."""
    names = {"register": register, "spark": spark, "engine": engine, "queue": Queue("documents")}
    names["dsn"] = database.conninfo
    reported: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    example = inspect.getdoc(register) or ""
    runner.run(doctest.DocTestParser().get_doctest(example, names, "register", None, 0), out=reported.append)
    assert (runner.tries, runner.failures) == (4, 0), "".join(reported)
