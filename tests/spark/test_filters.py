"""Filters of loaded frames, and tables of Spark's catalog."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from tests.spark.conftest import Target
from tests.spark.recorded import DAY, NOON, add


def test_filters_by_texts_that_no_column_can_hold_find_nothing(spark: SparkSession, target: Target) -> None:
    """A filter with a NUL, or with bytes that are not UTF-8, finds what it finds with any text that is not there."""
    add(target.database, 3)
    target.database.execute("select fq_make_channels('documents', '{customer-1}')")
    history, channels = (
        spark.read.format("fairqueue").options(**target.options, table=table).load()
        for table in ("history", "channels")
    )
    for text in (r"'a\u0000b'", "cast(X'ff' as string)"):
        found = {
            f"channel in ({text}, 'customer-1')": 1,
            f"not channel = {text} and not startswith(channel, {text})": 3,
        }
        for condition, rows in found.items():
            assert history.where(condition).count() == rows, condition
        assert channels.where(f"channel = {text}").count() == 0, text


def test_filters_by_headers(spark: SparkSession, target: Target, engine: Engine) -> None:
    """The text of headers is compared as it is read."""
    queue = Queue(target.queue)
    queue.enqueue(engine, channel="a", payload=1, headers={"source": "mail", "n": 1})
    queue.enqueue(engine, channel="a", payload=2)
    messages = spark.read.format("fairqueue").options(**target.options, table="messages").load()
    [text] = [row.headers for row in messages.select("headers").collect() if row.headers]
    assert messages.where(messages.headers == text).count() == 1
    assert messages.where(messages.headers.isin(text, "{}")).count() == 1


def test_queries_of_one_frame(spark: SparkSession, target: Target) -> None:
    """Each query of a loaded frame has the rows that it asks for, whatever another query of it or of its view asked."""
    add(target.database, 30)
    add(target.database, 6, finished=NOON - DAY)
    add(target.database, 4, queue="mails")
    history = spark.read.format("fairqueue").options(dsn=target.database.conninfo, table="history").load()
    mails, late = history.where("queue = 'mails'"), history.where(f"finished_at >= timestamp '{NOON}'")
    assert (mails.count(), history.count(), late.count(), mails.union(history).count()) == (4, 40, 34, 44)
    options = f"options (dsn '{target.database.conninfo}', table 'history')"
    spark.sql(f"create temporary view attempts using fairqueue {options}")
    try:
        counts = "(select count(*) from attempts where queue = 'mails'), (select count(*) from attempts)"
        assert [tuple(row) for row in spark.sql(f"select {counts}").collect()] == [(4, 40)]
    finally:
        spark.catalog.dropTempView("attempts")


def test_a_table_of_the_catalog_is_refused_in_words(spark: SparkSession, target: Target) -> None:
    """Spark reads a table of its catalog without the table's options, so that it is refused when it is made."""
    with pytest.raises(AnalysisException, match=r"write create temporary view \.\.\. using fairqueue options"):
        spark.sql(f"create table attempts using fairqueue options (dsn '{target.database.conninfo}', table 'history')")
    assert not spark.catalog.tableExists("attempts")
