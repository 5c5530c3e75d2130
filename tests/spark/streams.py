"""Streams without Spark: a reader asked what Spark would ask it, step by step."""

from typing import Any

import pyarrow as pa

from sqlalchemy_fairqueue.spark.reading.offsets import offset_of
from sqlalchemy_fairqueue.spark.reading.readers import ReadAllAvailable
from sqlalchemy_fairqueue.spark.source import FairQueueSource
from tests.fixtures.database import Database


class Follower:
    """A query: its reader, and its checkpoint, which outlives it."""

    def __init__(self, database: Database, checkpoint: dict[str, Any] | None = None, **options: object) -> None:
        given = {"dsn": database.conninfo} | {name: str(value) for name, value in options.items()}
        self.reader = FairQueueSource(given).streamReader(FairQueueSource(given).schema())
        self.checkpoint = checkpoint or self.reader.initialOffset()

    def batch(self, limit: object = None) -> list[int]:
        """One micro-batch: the ids that came."""
        end = self.reader.latestOffset(self.checkpoint, limit or ReadAllAvailable())
        found = self.again(end)
        self.checkpoint = end
        return found

    def again(self, end: dict[str, Any]) -> list[int]:
        """The ids of the micro-batch from the checkpoint to an offset, as often as asked."""
        batches = [batch for part in self.reader.partitions(self.checkpoint, end) for batch in self.reader.read(part)]
        return sorted(pa.Table.from_batches(batches).column("id").to_pylist()) if batches else []


def edge(database: Database) -> str:
    """The offset of the end of the history, as the options take it."""
    follower = Follower(database, startingOffsets="latest")
    follower.reader.stop()
    return str(offset_of(follower.checkpoint))
