"""Rows of a frame are members of groups, which the load makes with them."""

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Context, Delivery, Enqueue, InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.spark import enqueue
from tests.spark.conftest import Target
from tests.spark.staged_loads import stages

REPORT = Enqueue(channel="reports", payload={"of": "uploads"}, kind="report")
FAILURE = Enqueue(channel="reports", payload={}, kind="failure", priority=3, delay=timedelta(0))


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
    member = f"'{uuid4()}' as group".upper()
    frame = spark.range(0, 4, 1, 2).selectExpr("'a' as channel", "array(id) as payload", member)
    assert enqueue(frame, **target.options, job_id="one").created == 4
    with pytest.raises(InvalidArgument, match=r"there is a group .* already"):
        enqueue(frame, **target.options, job_id="two")
    counts = [target.database.value(f"select count(*) from {table}") for table in ("fq_message", "fq_load")]
    assert counts == [4, 1]
    [group] = Queue(target.queue).groups.list(engine)
    assert group.total == 4
