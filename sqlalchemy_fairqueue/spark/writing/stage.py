"""Makes, fills and drops the staging table, to which each task copies its rows in a transaction."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
from pyarrow import csv

from sqlalchemy_fairqueue.spark.connections import call, connect, translated_errors
from sqlalchemy_fairqueue.sql.schema import quoted
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.values.checks import HEADERS_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy_fairqueue.spark.connections import Installation
    from sqlalchemy_fairqueue.spark.options import TargetOptions, WriteOptions
    from sqlalchemy_fairqueue.spark.writing.columns import Problems

# A load takes long, and the role may have timeouts for short work.
NO_TIMEOUTS = "set statement_timeout = 0; set idle_in_transaction_session_timeout = 0"
# The classes of SQLSTATE that blame a row: data exceptions, broken constraints, limits of the server.
_ABOUT_A_ROW = {"22", "23", "54"}
_BAD_HEADERS = (
    f"headers have more than {HEADERS_BYTES:,} bytes of JSON as PostgreSQL writes them, less 64 in a group, or a "
    "number beyond 1e300 or closer to zero than 1e-300; keep what is large in the payload"
)
_COLUMN = re.compile(r", column (\w+)")
# A task that Spark gave up may still copy to the stage.
_DROP_WAIT = "5s"
# Do not wait long for a stage that a task is copying to: the run of this task drops it.
_LEFT_BEHIND_WAIT = "100ms"
# COPY reads an empty field as null and a quoted one as text, by default.
_CSV = csv.WriteOptions(include_header=False, quoting_style="needed")


@dataclass(frozen=True, slots=True)
class Stage:
    """A staging table. Its schema holds only staging tables, and its name is unique."""

    installation: Installation
    schema: str
    name: str

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


def make_stage(connection: psycopg.Connection, installation: Installation, options: WriteOptions) -> Stage:
    """Create the table of one run, and drop tables that are older than the option staging_ttl and not in use."""
    ttl = microseconds(options.staging_ttl)
    with translated_errors("make a staging table"):
        [stage] = _stages(
            connection, installation, "fq_make_stage", ttl=ttl, queue=options.queue, job_id=options.job_id
        )
    return stage


def drop_stage(target: TargetOptions, stage: Stage) -> None:
    """Drop a staging table. If the drop fails, no error is raised, since a later load drops the table."""
    with contextlib.suppress(Exception), contextlib.closing(connect(target, "cleanup", autocommit=True)) as connection:
        _drop(connection, stage, _DROP_WAIT)


def job_stages(connection: psycopg.Connection, installation: Installation, options: WriteOptions) -> list[Stage]:
    """Return the staging tables of all runs of a load, oldest first; none if the options have no *job_id*."""
    return _stages(connection, installation, "fq_job_stages", queue=options.queue, job_id=options.job_id)


def _stages(connection: psycopg.Connection, installation: Installation, function: str, **values: object) -> list[Stage]:
    [(schema,)] = call(connection, installation, "fq_stage_schema")
    return [Stage(installation, schema, name) for (name,) in call(connection, installation, function, **values)]


def drop_left_behind(connection: psycopg.Connection, stages: Iterable[Stage]) -> list[Stage]:
    dropped = []
    for stage in stages:
        with contextlib.suppress(psycopg.Error):
            _drop(connection, stage, _LEFT_BEHIND_WAIT)
            dropped.append(stage)
    connection.execute("reset lock_timeout")
    return dropped


def _drop(connection: psycopg.Connection, stage: Stage, wait: str) -> None:
    connection.execute(f"set lock_timeout = '{wait}'".encode())
    call(connection, stage.installation, "fq_drop_stage", stage=stage.name)


def copy_rows(  # noqa: PLR0917 - a copy needs all of them
    target: TargetOptions,
    stage: Stage,
    attempt: int,
    names: Sequence[str],
    batches: Iterable[Sequence[pa.Array]],
    refuse: Callable[[Problems], None] | None = None,
) -> int:
    """Copy rows to the stage in one transaction, and return their number. Without rows no connection is opened.

    *attempt*, the task attempt, marks the rows; *names* are the columns of the batches. Rows that the table refuses are
    left out and passed to *refuse*, by index, before the next batch is requested. Without *refuse* they fail the copy.
    """
    filled = (batch for batch in batches if len(batch[0]))
    first = next(filled, None)
    if first is None:
        return 0
    copy_statement = f"copy {stage.quoted} (attempt, {', '.join(names)}) from stdin (format csv)".encode()
    with translated_errors("stage rows"), contextlib.closing(connect(target, "staging")) as connection:
        connection.execute(NO_TIMEOUTS)

        def copy_part(columns: Sequence[pa.Array]) -> None:
            # A savepoint, so that a refused part does not undo the parts that were copied before.
            with connection.transaction(), connection.cursor() as cursor, cursor.copy(copy_statement) as copy:
                copy.write(_csv(attempt, names, columns))

        rows = 0
        for batch in chain([first], filled):
            refused: Problems = {}
            try:
                copy_part(batch)
            except psycopg.Error as error:
                if refuse is None or not _is_about_a_row(error):
                    raise
                refused = _copy_all_but_refused(copy_part, batch, error)
                refuse(refused)
            rows += len(batch[0]) - len(refused)
        connection.commit()
    return rows


def _copy_all_but_refused(
    copy_part: Callable[[Sequence[pa.Array]], None], batch: Sequence[pa.Array], refusal: psycopg.Error
) -> Problems:
    """Halve a refused batch again and again until all good rows are copied; return the problems of the others."""
    refused: Problems = {}
    parts = [(0, len(batch[0]), refusal)]
    while parts:
        start, count, error = parts.pop()
        if count == 1:
            refused[start] = _reason(error)
            continue
        half = count // 2
        for begin, length in ((start, half), (start + half, count - half)):
            try:
                copy_part([column.slice(begin, length) for column in batch])
            except psycopg.Error as raised:
                if not _is_about_a_row(raised):
                    raise
                parts.append((begin, length, raised))
    return refused


def _is_about_a_row(error: psycopg.Error) -> bool:
    return (error.sqlstate or "")[:2] in _ABOUT_A_ROW


def _reason(error: psycopg.Error) -> str:
    constraint = error.diag.constraint_name
    if constraint == "headers_check":
        return _BAD_HEADERS
    # Only the column is taken from the context, which also has the value; that may be confidential.
    if column := _COLUMN.search(error.diag.context or ""):
        return f"{column[1]}: {error.diag.message_primary} (SQLSTATE {error.sqlstate}); correct it, or leave it out"
    what = f"its values break the constraint {constraint}" if constraint else error.diag.message_primary
    return f"the staging table refuses the row: {what} (SQLSTATE {error.sqlstate}); correct it, or leave it out"


def _csv(attempt: int, names: Sequence[str], batch: Sequence[pa.Array]) -> bytes:
    marks = pa.repeat(pa.scalar(attempt, pa.int64()), len(batch[0]))
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.table([marks, *batch], ["attempt", *names]), sink, _CSV)
    written: bytes = sink.getvalue().to_pybytes()
    return written
