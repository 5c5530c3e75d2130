"""A frame becomes messages: all of them once, or none."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: "SparkSession", rows: int = 10, channels: int = 3, parts: int = 2) -> "DataFrame":
    """Rows ``{"document": n}`` for a few channels."""
    return spark.range(0, rows, 1, parts).selectExpr(
        f"concat('customer-', id % {channels}) as channel", "named_struct('document', id, 'size', 'x') as payload"
    )


def documents(place: Place) -> list[Any]:
    """The documents of all messages, in order."""
    rows = place.database.rows(
        "select c.name, m.kind, (convert_from(m.content, 'UTF8')::jsonb -> 'document')::bigint as document"
        " from fq_message m join fq_channel c on c.id = m.channel_id order by document"
    )
    return [row.document for row in rows]


def test_a_frame_is_enqueued(spark: "SparkSession", place: Place) -> None:
    """Each row is a message of its channel, and nothing else is left."""
    frame(spark).write.format("fairqueue").mode("append").options(**place.options).save()
    assert documents(place) == list(range(10))


def test_function(spark: "SparkSession", place: Place) -> None:
    """Each row is a message of its channel, and nothing else is left."""
    from sqlalchemy_fairqueue.spark import enqueue
    print(enqueue(frame(spark), **place.options))
    assert documents(place) == list(range(10))
