"""The driver's transaction: channels first, then all that was staged at once, tried again where that can help."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg

from sqlalchemy_fairqueue.spark.connecting import connect, refusals
from sqlalchemy_fairqueue.spark.errors import Unreachable
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.spark.connecting import Installation
    from sqlalchemy_fairqueue.spark.writing.settings import WriteOptions
    from sqlalchemy_fairqueue.spark.writing.staging import Stage

_CHANNELS_AT_ONCE = 20_000
_PATIENCE_SECONDS = 120.0
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
# A lock that somebody else holds, a deadlock, a serialization failure, a server that is starting or stopping.
_PASSING = {"55P03", "40P01", "40001", "57P01", "57P02", "57P03", "53300"}
_SETTINGS = (
    "set statement_timeout = 0",
    "set idle_in_transaction_session_timeout = 0",
    # A driver that is gone must not have its work go on for minutes: whoever tries again would wait for it.
    "set client_connection_check_interval = '2s'",
)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What became of a load.

    Attributes:
        job_id: What it is known by.
        merged: Whether this run enqueued it. False: it had been before, and the counts are those of then.
        messages: The rows of the frame that were good.
        created: Messages that were added.
        replaced: Messages that stood with the same key and were rewritten.
        duplicates: Rows whose key stood already, or came twice; they were skipped.
        dropped: Rows for channels that were full and drop then.
        rejected: Rows with bad values, which were kept back.
    """

    job_id: str
    merged: bool
    messages: int
    created: int
    replaced: int
    duplicates: int
    dropped: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Attempts:
    """The copies into a stage that count.

    Attributes:
        ids: Their marks, one a partition.
        messages: How many rows they have.
        rejected: How many rows were kept back.
    """

    ids: tuple[int, ...]
    messages: int
    rejected: int


def committed(
    connection: psycopg.Connection, found: Installation, queue: str, job_id: str
) -> tuple[LoadResult, int | None] | None:
    """What is known of a job that was committed before, and its last micro-batch; None if there is none."""
    statement = (
        f"select batch_id, messages, created, replaced, duplicates, dropped, rejected from {found.quoted}.fq_load "  # noqa: S608 - quoted
        "where queue = %s and job_id = %s"
    )
    row = connection.execute(statement.encode(), [queue, job_id]).fetchone()
    return None if row is None else (LoadResult(job_id, False, *row[1:]), row[0])


def merge(  # noqa: PLR0917 - all of them are what a merge is
    options: WriteOptions,
    found: Installation,
    stage: Stage,
    job_id: str,
    attempts: Attempts,
    batch_id: int | None = None,
    source: str | None = None,
) -> LoadResult:
    """Enqueue what was staged, once, in one transaction.

    A lost connection does not tell whether the commit came through: the same call again does, for the job knows. So
    that, and a lock that somebody held too long, is tried again for two minutes.

    Raises:
        PipelineError: It did not come through; unless the message says that the connection was lost, nothing was
            enqueued.
        StageIncomplete, KeyStands, ChannelFull, InvalidArgument: As the class says; nothing was enqueued.
    """
    doing = f"merge job {job_id!r}" + (f", batch {batch_id}" if batch_id is not None else "")
    started = monotonic()
    for tried in range(1_000):
        try:
            with refusals(doing), contextlib.closing(connect(options, "merge", autocommit=True)) as connection:
                for setting in _SETTINGS:
                    connection.execute(setting.encode())
                _make_channels(connection, found, options, stage, attempts)
                return _merge(connection, found, options, stage, job_id, attempts, batch_id, source)
        except Exception as error:
            if not _passes(error) or monotonic() - started > _PATIENCE_SECONDS:
                raise
        Event().wait(_PAUSES_SECONDS[min(tried, len(_PAUSES_SECONDS) - 1)])
    raise AssertionError


def _make_channels(
    connection: psycopg.Connection, found: Installation, options: WriteOptions, stage: Stage, attempts: Attempts
) -> None:
    policy: Sequence[Any] = (
        options.max_concurrency,
        None if options.release_interval is None else microseconds(options.release_interval),
        options.release_burst,
        options.weight,
        options.max_backlog,
        options.drop_when_full,
    )
    statement = (
        f"select {found.quoted}.fq_make_stage_channels("
        "%s, %s, %s::bigint[], %s, %s::integer, %s::bigint, %s::integer, %s::integer, %s::integer, %s::boolean)"
    )
    made = _CHANNELS_AT_ONCE
    while made == _CHANNELS_AT_ONCE:
        row = connection.execute(
            statement.encode(), [options.queue, stage.name, list(attempts.ids), _CHANNELS_AT_ONCE, *policy]
        ).fetchone()
        made = int(row[0]) if row else 0


def _merge(  # noqa: PLR0917 - as merge
    connection: psycopg.Connection,
    found: Installation,
    options: WriteOptions,
    stage: Stage,
    job_id: str,
    attempts: Attempts,
    batch_id: int | None,
    source: str | None,
) -> LoadResult:
    statement = (
        "select merged, messages, created, replaced, duplicates, dropped, rejected "  # noqa: S608 - quoted
        f"from {found.quoted}.fq_merge(%s, %s, %s, %s::bigint[], %s, %s::bigint, %s::text, %s, %s)"
    )
    connection.execute("begin isolation level read committed")
    row = connection.execute(
        statement.encode(),
        [
            options.queue,
            job_id,
            stage.name,
            list(attempts.ids),
            attempts.messages,
            batch_id,
            source,
            options.on_duplicate,
            attempts.rejected,
        ],
    ).fetchone()
    connection.execute("commit")
    assert row is not None  # noqa: S101 - a function returns a row
    return LoadResult(job_id, *row)


def _passes(error: Exception) -> bool:
    """Whether the same merge may come through a little later."""
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    if isinstance(cause, psycopg.Error):
        return cause.sqlstate in _PASSING if cause.sqlstate else isinstance(cause, psycopg.OperationalError)
    # A server that is being restarted cannot be reached for a while.
    return isinstance(error, Unreachable)
