"""Rows of a frame are members of groups, which the load makes with them."""

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Context, Delivery, Enqueue, InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.spark import enqueue
from sqlalchemy_fairqueue.spark.errors import BadFrame, BadOption
from sqlalchemy_fairqueue.spark.options import WriteOptions, read_options
from sqlalchemy_fairqueue.spark.writing.columns import columns_of
from tests.spark.conftest import Target
from tests.spark.staged_loads import stages

REPORT = Enqueue(channel="reports", payload={"of": "uploads"}, kind="report")
FAILURE = Enqueue(channel="reports", payload={}, kind="failure", priority=3, delay=timedelta(0))


def columns(*names: str, **options: Any) -> Any:
    """The columns of a frame."""
    chosen = WriteOptions(dsn="host=x", queue="q", **options)
    return columns_of(StructType([StructField(name, StringType()) for name in ("channel", "payload", *names)]), chosen)


def test_members_are_followed(spark: SparkSession, target: Target, engine: Engine) -> None:
    """Two uploads of three pages and a row without a group: each upload is followed once, by what it came to."""
    queue = Queue(target.queue)
    frame = spark.range(0, 7, 1, 2).selectExpr(
        "concat('customer-', id) as channel",
        "array(id) as payload",
        "case when id < 6 then md5(concat('job/', id % 2)) end as group",
        "case when id = 5 then 1 end as max_attempts",
        "map('trace', 'x') as headers",
    )
    for merged in (True, False):
        done = enqueue(frame, **target.options, job_id="job", then=REPORT, on_failure=FAILURE)
        assert (done.merged, done.created, stages(target.database)) == (merged, 7, 0)
    groups = list(queue.groups.list(engine))
    assert [(one.total, one.pending) for one in groups] == [(3, 3), (3, 3)]
    followed: dict[str, Any] = {}
    members: Counter[Any] = Counter()

    @queue.handler("default")
    def work(delivery: Delivery, context: Context) -> None:
        assert (delivery.headers or {})["trace"] == "x"
        members[context.group and context.group.id] += 1
        if delivery.payload == [5]:
            raise RuntimeError("a page that cannot be read")

    def note(delivery: Delivery, context: Context) -> None:
        assert followed.setdefault(delivery.kind, context.after_group) is context.after_group

    queue.handler("report")(note)
    queue.handler("failure")(note)
    Worker(engine, queue, concurrency=1).run(drain=True)
    counts = {kind: (after.done, after.failed) for kind, after in followed.items()}
    assert counts == {"failure": (2, 1), "report": (3, 0)}
    assert members == {None: 1, **{after.id: 3 for after in followed.values()}}
    assert {after.id for after in followed.values()} == {one.id for one in groups}


def test_a_group_is_in_one_load(spark: SparkSession, target: Target, engine: Engine) -> None:
    """A second load with rows of the same group is refused whole."""
    frame = spark.range(0, 4, 1, 2).selectExpr("'a' as channel", "array(id) as payload", f"'{uuid4()}' as group")
    assert enqueue(frame, **target.options, job_id="one").created == 4
    with pytest.raises(InvalidArgument, match=r"there is a group .* already"):
        enqueue(frame, **target.options, job_id="two")
    counts = [target.database.value(f"select count(*) from {table}") for table in ("fq_message", "fq_load")]
    assert counts == [4, 1]
    [group] = Queue(target.queue).groups.list(engine)
    assert group.total == 4


def test_a_value_that_is_no_group_is_a_bad_row() -> None:
    """It is told before anything is staged; with and without dashes is a UUID, and null is no group."""
    found = uuid4()
    groups = [str(found), found.hex.upper(), None, "7", f"{found}0"]
    batch = pa.record_batch({"channel": ["a"] * 5, "payload": ["x"] * 5, "group": groups})
    _, problems = columns("group").rows(batch)
    assert {index: problem.partition(";")[0] for index, problem in problems.items()} == {
        3: "group is '7'", 4: f"group is '{found}0'",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("names", "options", "problem"),
    [
        (("group",), {"on_duplicate": "replace"}, "column 'group' and onDuplicate=replace do not go together"),
        ((), {"then": REPORT}, "the frame has no column 'group'"),
        ((), {"on_failure": REPORT}, "the frame has no column 'group'"),
    ],
)
def test_what_does_not_go_together(names: tuple[str, ...], options: dict[str, Any], problem: str) -> None:
    """The driver refuses it."""
    with pytest.raises(BadFrame, match=problem):
        columns(*names, **options)
    schema = StructType([StructField("channel", StringType()), StructField("group", IntegerType())])
    with pytest.raises(BadFrame, match="column 'group' is int; make it a string"):
        columns_of(schema, WriteOptions(dsn="host=x", queue="q"))


def test_a_message_that_follows_may_be_text() -> None:
    """As Spark passes options, JSON with the fields of an Enqueue."""
    given = {"dsn": "host=x", "queue": "q", "then": '{"channel": "a", "payload": [1], "kind": "k", "delay": "5m"}'}
    expected = Enqueue(channel="a", payload=[1], kind="k", delay=timedelta(minutes=5))
    assert read_options(WriteOptions, given).then == expected
    text: Any = given["then"]
    assert WriteOptions(dsn="host=x", queue="q", on_failure=text).on_failure == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("secret", "option then: its value is no JSON"),
        ("[1]", "option then: its value is no message"),
        ('{"channel": "a"}', "option then: its value is no message: .*'payload'"),
        ('{"channel": "", "payload": 1}', "option then: channel"),
        (7, "option then is a int"),
        (Enqueue(channel="a", payload=1, cost=2), "option then has cost=2"),
        (Enqueue(channel="a", payload=1, headers={"after_group": 1}), "option then has a header 'after_group'"),
        (Enqueue(channel="a", payload={1}), "option then: "),
    ],
)
def test_a_message_that_cannot_follow_is_refused(value: Any, problem: str) -> None:
    """By the name of the option, without its payload."""
    with pytest.raises(BadOption, match=problem) as error:
        WriteOptions(dsn="host=x", queue="q", then=value)
    assert "secret" not in str(error.value)
