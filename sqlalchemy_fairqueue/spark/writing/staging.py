"""The table that executors copy rows into, and the copying. Each task copies in one transaction of its own."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from sqlalchemy_fairqueue.spark.connecting import connect, refusals
from sqlalchemy_fairqueue.sql import quoted
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import psycopg

    from sqlalchemy_fairqueue.spark.connecting import Installation
    from sqlalchemy_fairqueue.spark.options import PlaceOptions
    from sqlalchemy_fairqueue.spark.writing.settings import WriteOptions

_DROP_WAIT = "5s"
# Nulls are empty, texts always in quotes: what COPY takes by default.
_CSV = csv.WriteOptions(include_header=False, quoting_style="needed")


@dataclass(frozen=True, slots=True)
class Stage:
    """A staging table.

    Attributes:
        schema: Where it is.
        name: Its name, which is as good as random.
    """

    schema: str
    name: str

    @property
    def quoted(self) -> str:
        """The table as SQL names it."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"


def make_stage(connection: psycopg.Connection, found: Installation, options: WriteOptions) -> Stage:
    """Make a table for one run, and drop what runs that died left behind longer ago than the options say."""
    with refusals("make a staging table"):
        row = connection.execute(
            f"select {found.quoted}.fq_make_stage(%s)".encode(), [microseconds(options.staging_ttl)]
        ).fetchone()
    assert row is not None  # noqa: S101 - a function returns a row
    return Stage(found.schema, str(row[0]))


def drop_stage(place: PlaceOptions, stage: Stage) -> None:
    """Drop the table, if the server lets us within a few seconds: else a later load does, when it is old enough.

    A task that nobody waits for any more may still be copying into it.
    """
    with contextlib.suppress(Exception), contextlib.closing(connect(place, "cleanup", autocommit=True)) as connection:
        connection.execute(f"set lock_timeout = '{_DROP_WAIT}'".encode())
        connection.execute(f"drop table if exists {stage.quoted}".encode())


def copy_rows(
    place: PlaceOptions, stage: Stage, attempt: int, names: Sequence[str], batches: Iterable[Sequence[pa.Array]]
) -> int:
    """Copy rows into the stage in one transaction; returns how many. Without rows nobody connects.

    Args:
        place: Where.
        stage: The table.
        attempt: What the rows are marked with.
        names: The columns of the table that the batches have.
        batches: Rows as columns.
    """
    filled = _not_empty(batches)
    first = next(filled, None)
    if first is None:
        return 0
    target = f"{stage.quoted} (attempt, {', '.join(names)})"
    with refusals("stage rows"), contextlib.closing(connect(place, "staging")) as connection:
        connection.execute("set statement_timeout = 0")
        rows = 0
        batch: Sequence[pa.Array] | None = first
        with connection.cursor() as cursor, cursor.copy(f"copy {target} from stdin (format csv)".encode()) as copy:
            while batch is not None:
                rows += len(batch[0])
                copy.write(_csv(attempt, names, batch))
                batch = next(filled, None)
        connection.commit()
    return rows


def _not_empty(batches: Iterable[Sequence[pa.Array]]) -> Iterator[Sequence[pa.Array]]:
    return (batch for batch in batches if len(batch[0]))


def _csv(attempt: int, names: Sequence[str], batch: Sequence[pa.Array]) -> bytes:
    marks = pa.repeat(pa.scalar(attempt, pa.int64()), len(batch[0]))
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.table([marks, *batch], ["attempt", *names]), sink, _CSV)
    written: bytes = sink.getvalue().to_pybytes()
    return written
