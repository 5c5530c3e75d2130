"""Merge of staged rows, in one transaction of the driver after their channels are made; retried if that can help."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from sqlalchemy_fairqueue.database.configuration import new_policy_json
from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure
from sqlalchemy_fairqueue.spark.connections import connect, translated_errors
from sqlalchemy_fairqueue.spark.errors import Unreachable
from sqlalchemy_fairqueue.spark.writing.options import PLACES, followup_parameters

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.spark.connections import Installation
    from sqlalchemy_fairqueue.spark.writing.options import WriteOptions
    from sqlalchemy_fairqueue.spark.writing.stage import Stage

_CHANNELS_AT_ONCE = 20_000
_RETRY_SECONDS = 120.0
_PAUSE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_SETTINGS = (
    "set statement_timeout = 0",
    "set idle_in_transaction_session_timeout = 0",
    # The statement of a driver that died must not run on for minutes: its successor would wait for it.
    "set client_connection_check_interval = '2s'",
)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load.

    Attributes:
        job_id: The id of the job.
        merged: Whether this run enqueued it. False: an earlier run did, and the counts are those of that run.
        messages: Good rows of the frame.
        created: Messages that were added.
        replaced: Messages with the same key that were replaced.
        duplicates: Rows whose key another message or row had; they were skipped.
        dropped: Rows for channels that were full and drop messages then.
        rejected: Rows with bad values, which were rejected.
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
    """The successful attempts of tasks, whose rows count.

    Attributes:
        ids: Their ids, one a partition.
        messages: The number of their rows.
        rejected: The number of rejected rows.
    """

    ids: tuple[int, ...]
    messages: int
    rejected: int


def committed(
    connection: psycopg.Connection, installation: Installation, queue: str, job_id: str
) -> tuple[LoadResult, int | None] | None:
    """The result of a job that was committed before, and its last micro-batch; None without one."""
    statement = (
        "select batch_id, messages, created, replaced, duplicates, dropped, rejected "  # noqa: S608 - quoted
        f"from {installation.quoted}.fq_find_load(%s::text, %s::text)"
    )
    row = connection.execute(statement.encode(), [queue, job_id]).fetchone()
    return None if row is None else (LoadResult(job_id, False, *row[1:]), row[0])


@dataclass(frozen=True, slots=True)
class Merge:
    """The merge of a load.

    Attributes:
        options: The options of the write.
        installation: The installation.
        stage: The table.
        job_id: The job.
        attempts: The attempts that count.
        batch_id: The micro-batch of a stream.
        source: Its query.
        groups: Whether rows name groups, which are made with them.
    """

    options: WriteOptions
    installation: Installation
    stage: Stage
    job_id: str
    attempts: Attempts
    batch_id: int | None = None
    source: str | None = None
    groups: bool = False

    def run(self) -> LoadResult:
        """Enqueue the staged rows once, in one transaction.

        After a lost connection it is not known whether the commit succeeded: the same call again tells, as the job is
        recorded. So a lost connection and a lock timeout are retried for two minutes.

        Raises:
            PipelineError: The merge failed. Unless the message says that the connection was lost, nothing was enqueued.
            StageIncomplete, KeyStands, ChannelFull, InvalidArgument: As the class says; nothing was enqueued.
        """
        action = f"merge job {self.job_id!r}" + (f", batch {self.batch_id}" if self.batch_id is not None else "")
        started = monotonic()
        for tried in range(1_000):
            try:
                with (
                    translated_errors(action),
                    contextlib.closing(connect(self.options, "merge", autocommit=True)) as connection,
                ):
                    for setting in _SETTINGS:
                        connection.execute(setting.encode())
                    self._make_channels(connection)
                    return self._merge(connection)
            except Exception as error:
                if not _is_transient(error) or monotonic() - started > _RETRY_SECONDS:
                    raise
            Event().wait(_PAUSE_SECONDS[min(tried, len(_PAUSE_SECONDS) - 1)])
        raise AssertionError

    def _make_channels(self, connection: psycopg.Connection) -> None:
        statement = (
            f"select {self.installation.quoted}.fq_make_stage_channels(%s::text, %s::text, %s::bigint[],"
            " %s::integer, %s::jsonb)"
        )
        made = _CHANNELS_AT_ONCE
        while made == _CHANNELS_AT_ONCE:
            row = connection.execute(statement.encode(), [*self._rows, _CHANNELS_AT_ONCE, self._policy]).fetchone()
            made = int(row[0]) if row else 0

    def _merge(self, connection: psycopg.Connection) -> LoadResult:
        options, attempts = self.options, self.attempts
        statement = (
            "select merged, messages, created, replaced, duplicates, dropped, rejected "  # noqa: S608 - quoted
            f"from {self.installation.quoted}.fq_merge(%s::text, %s::text, %s::text, %s::bigint[], %s::bigint,"
            " %s::bigint, %s::text, %s::text, %s::bigint, true::boolean)"
        )
        queue, stage, ids = self._rows
        values = [queue, self.job_id, stage, ids, attempts.messages, self.batch_id, self.source]
        connection.execute("begin isolation level read committed")
        row = connection.execute(statement.encode(), [*values, options.on_duplicate, attempts.rejected]).fetchone()
        assert row is not None  # noqa: S101 - a function returns a row
        if self.groups and row[0]:
            followups = followup_parameters(options.then, options.on_failure, options.max_attempts)
            connection.execute(
                f"select {self.installation.quoted}.fq_make_load_groups("
                f"%s::text, %s::text, %s::bigint[], {PLACES}, %s::jsonb)".encode(),
                [*self._rows, *followups, self._policy],
            )
        connection.execute("commit")
        return LoadResult(self.job_id, *row)

    @property
    def _rows(self) -> tuple[str, str, list[int]]:
        """The queue, the table, and the attempts whose rows count."""
        return self.options.queue, self.stage.name, list(self.attempts.ids)

    @property
    def _policy(self) -> str | None:
        return new_policy_json(self.options.policy)


def _is_transient(error: Exception) -> bool:
    """Whether the same merge may succeed a little later."""
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    # A server that restarts cannot be reached for a while.
    return isinstance(error, Unreachable) or is_away(cause) or is_serialization_failure(cause)
