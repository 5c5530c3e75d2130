"""Streams without Spark: a reader asked what Spark would ask it, step by step."""

from collections.abc import Callable
from typing import Any

from sqlalchemy_fairqueue.spark.reading.offsets import offset_of
from sqlalchemy_fairqueue.spark.reading.readers import ReadAllAvailable, ReadMaxRows
from sqlalchemy_fairqueue.spark.source import FairQueueSource
from tests.fixtures.database import Database

Follow = Callable[..., "Follower"]
Checkpoint = dict[str, Any]


class Follower:
    """A query: its reader, and its checkpoint, which outlives it."""

    def __init__(self, database: Database, checkpoint: Checkpoint | None = None, **options: object) -> None:
        given = {"dsn": database.conninfo} | {name: str(value) for name, value in options.items()}
        self.reader: Any = FairQueueSource(given).streamReader(FairQueueSource(given).schema())
        try:
            self.checkpoint: Checkpoint = checkpoint or self.reader.initialOffset()
        except BaseException:
            self.reader.stop()
            raise

    def end(self, most: int | None = None) -> Checkpoint:
        """The offset with which the next micro-batch ends."""
        found: Checkpoint = self.reader.latestOffset(self.checkpoint, ReadMaxRows(most) if most else ReadAllAvailable())
        return found

    def rows(self, end: Checkpoint) -> list[dict[str, Any]]:
        """The rows of the micro-batch from the checkpoint to an offset, as often as asked."""
        parts = self.reader.partitions(self.checkpoint, end)
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def batch(self, most: int | None = None) -> list[dict[str, Any]]:
        """One micro-batch. As Spark does, the one before is committed once this one has its end."""
        end = self.end(most)
        if end != self.checkpoint:
            self.reader.commit(self.checkpoint)
        found = self.rows(end)
        self.checkpoint = end
        return found

    def ids(self, most: int | None = None) -> list[int]:
        """One micro-batch of the history: the ids that came."""
        return sorted(row["id"] for row in self.batch(most))


def edge(database: Database) -> str:
    """The offset of the end of the history, as the options take it."""
    follower = Follower(database, startingOffsets="latest")
    follower.reader.stop()
    return str(offset_of(follower.checkpoint))
