"""Filters that the server evaluates, and tables of Spark's catalog."""

from datetime import timedelta

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.spark.reading.queries import pushed_down
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY
from sqlalchemy_fairqueue.times import instant_microseconds
from tests.spark.conftest import Target
from tests.spark.recorded import DAY, NOON, add

_MICROS = instant_microseconds(NOON)


@pytest.mark.parametrize(
    ("one", "clause", "value"),
    [
        (ds.EqualTo(("queue",), "a'b"), "h.queue::text = %(pushed0)s::text", "a'b"),
        (
            ds.In(("outcome",), ("retried", "buried")),
            "h.outcome::text = any(%(pushed0)s::text[])",
            ["retried", "buried"],
        ),
        (ds.GreaterThan(("finished_at",), NOON), "h.finished_at > %(pushed0)s::bigint", _MICROS),
        (ds.GreaterThanOrEqual(("finished_at",), NOON), "h.finished_at >= %(pushed0)s::bigint", _MICROS),
        (ds.LessThan(("ready_at",), NOON), "h.ready_at < %(pushed0)s::bigint", _MICROS),
        (ds.LessThanOrEqual(("started_at",), NOON), "h.started_at <= %(pushed0)s::bigint", _MICROS),
    ],
)
def test_what_the_server_evaluates(one: ds.Filter, clause: str, value: object) -> None:
    """Equality of texts and comparisons of times go to the server, with values as parameters."""
    condition, left = pushed_down([one], HISTORY)
    assert left == []
    assert condition.text == clause
    assert condition.values == {"pushed0": value}


@pytest.mark.parametrize(
    "one",
    [
        ds.EqualTo(("queue",), 5), ds.EqualTo(("attempt",), 1), ds.EqualTo(("nothing",), "a"),
        ds.EqualTo(("queue", "a"), "b"), ds.EqualNullSafe(("queue",), "a"), ds.In(("queue",), ("a", None)),
        ds.Not(ds.EqualTo(("queue",), "a")), ds.StringStartsWith(("channel",), "a"), ds.GreaterThan(("channel",), "a"),
        ds.GreaterThan(("finished_at",), NOON.replace(tzinfo=None)), ds.IsNotNull(("queue",)),
    ],
)  # fmt: skip
def test_all_others_are_left_to_spark(one: ds.Filter) -> None:
    """What the two might mean in different ways is left to Spark."""
    condition, left = pushed_down([one], HISTORY)
    assert (condition.clauses, left) == ((), [one])


@pytest.mark.parametrize("text", ["a\0b", "\0", "a\ud800", "\udfff"])
def test_a_text_that_no_column_can_hold_equals_none(text: str) -> None:
    """The server is not asked for what it cannot be told, and is asked for the other values of a list."""
    condition, left = pushed_down([ds.EqualTo(("channel",), text), ds.In(("queue",), (text, "q"))], HISTORY)
    assert left == []
    assert condition.clauses == ("false", "h.queue::text = any(%(pushed1)s::text[])")
    assert condition.values == {"pushed1": ["q"]}


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


def test_the_server_evaluates_the_filters_of_a_view(spark: SparkSession, target: Target) -> None:
    """A view of SQL reads only the rows that its filters leave; what the server does not evaluate, Spark does."""
    add(target.database, 30)
    add(target.database, 6, finished=NOON - DAY)
    add(target.database, 4, queue="mails")
    options = f"options (dsn '{target.database.conninfo}', table 'history')"
    spark.sql(f"create temporary view attempts using fairqueue {options}")
    try:
        assert spark.table("attempts").count() == 40
        frame = spark.sql(
            "select channel, count(*) as attempts from attempts where queue = 'documents' and outcome = 'completed' "
            f"and finished_at >= timestamp '{NOON - timedelta(hours=1)}' and channel in ('customer-1', 'customer-2') "
            "and attempt = 1 group by channel order by channel"
        )
        assert [tuple(row) for row in frame.collect()] == [("customer-1", 10), ("customer-2", 10)]
        plan = frame._jdf.queryExecution().optimizedPlan().toString()
        kept = plan[plan.index("Filter") :].splitlines()[0]
        assert "attempt" in kept
        assert not any(f"({name}#" in kept for name in ("queue", "outcome", "finished_at"))
    finally:
        spark.catalog.dropTempView("attempts")


def test_a_table_of_the_catalog_is_refused_in_words(spark: SparkSession, target: Target) -> None:
    """Spark reads a table of its catalog without the table's options, so that it is refused when it is made."""
    with pytest.raises(AnalysisException, match=r"write create temporary view \.\.\. using fairqueue options"):
        spark.sql(f"create table attempts using fairqueue options (dsn '{target.database.conninfo}', table 'history')")
    assert not spark.catalog.tableExists("attempts")
