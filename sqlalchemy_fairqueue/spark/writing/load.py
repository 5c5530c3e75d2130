"""Runs a load: tasks stage rows, and the driver merges them."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, replace
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from sqlalchemy_fairqueue.database.configuration import new_policy_json
from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure
from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.spark.connections import call, connect, find_installation, translated_errors
from sqlalchemy_fairqueue.spark.errors import BadOption, BadRows, PipelineError, Unreachable
from sqlalchemy_fairqueue.spark.writing.rejected_rows import RejectedRows, RejectedRowsWriter, file_system
from sqlalchemy_fairqueue.spark.writing.stage import (
    NO_TIMEOUTS,
    Stage,
    copy_rows,
    drop_left_behind,
    drop_stage,
    job_stages,
    make_stage,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from sqlalchemy_fairqueue.spark.connections import Installation
    from sqlalchemy_fairqueue.spark.options import WriteOptions
    from sqlalchemy_fairqueue.spark.writing.columns import Columns, Problems

EXAMPLES = 10

_QUERY = "sql.streaming.queryId"


_CHANNELS_AT_ONCE = 20_000
_RETRY_SECONDS = 120.0
_PAUSE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_SETTINGS = (
    NO_TIMEOUTS,
    # The statement of a dead driver must not continue for minutes, since the next run would wait for it.
    "set client_connection_check_interval = '2s'",
)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load.

    Attributes:
        merged: Whether the last try of this run enqueued the load. If not, the load was enqueued before: by another
            run, or by an earlier try, which lost its connection. The counts are those of the successful run or try.
        messages: Good rows of the frame.
        duplicates: Skipped rows whose key another message or row had.
        dropped: Rows for full channels that drop messages.
    """

    job_id: str
    merged: bool
    messages: int
    created: int
    replaced: int
    duplicates: int
    dropped: int
    rejected: int


def committed(connection: psycopg.Connection, installation: Installation, queue: str, job_id: str) -> LoadResult | None:
    """Return the result of the load *job_id* if it was committed before; None if not, or if *job_id* is a stream's."""
    found = call(connection, installation, "fq_find_load", queue=queue, job_id=job_id)
    return next((LoadResult(job_id, False, *counts) for batch_id, *counts in found if batch_id is None), None)


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """The report of a finished task.

    Attributes:
        attempt: Spark's id of the task attempt, which marks its rows.
        source: The id of the streaming query, which stays the same as long as its checkpoint.
        stage: The staging table. In a stream, Spark's tasks and the commit have separate writer objects, so the commit
            takes the table from this report.
        examples: Descriptions of bad rows that fail the load.
        superseded: Whether the task staged nothing, because another run has merged the load.
    """

    partition: int
    attempt: int
    source: str | None
    stage: Stage | None
    messages: int = 0
    rejected: int = 0
    examples: tuple[str, ...] = ()
    superseded: bool = False


class _BadRowFound(Exception):
    """A task found a bad row, and bad rows fail this load."""


@dataclass(frozen=True, slots=True)
class Load:
    """A run of a load. It is sent to executors, so it holds no connection.

    Attributes:
        stage: The staging table. None: an earlier run has committed the load, and *before* is the result of that run.
        left: The staging tables that other runs of the load had when this run began. Once the load is merged, these
            tables are useless, even if another run still lives.
    """

    options: WriteOptions
    columns: Columns
    installation: Installation
    job_id: str
    stage: Stage | None
    before: LoadResult | None = None
    left: tuple[Stage, ...] = ()

    def stage_rows(self, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Copy the rows of a task to the stage. Reject bad rows or, if they fail the load, report examples of them."""
        context = TaskContext.get()
        if context is None:
            raise PipelineError("rows are staged by tasks of Spark; call this from one")
        source = context.getLocalProperty(_QUERY) or None
        staged = Staged(context.partitionId(), context.taskAttemptId(), source, self.stage)
        if self.stage is None:
            return staged
        task = _Task(self, staged.attempt)
        rest = iter(batches)
        try:
            messages = copy_rows(
                self.options, self.stage, staged.attempt, self.columns.staged, task.good_rows(rest), task.refuse
            )
        except _BadRowFound:
            task.collect_examples(rest)
            return replace(staged, examples=tuple(task.examples))
        except FairQueueError as error:
            if not _stage_is_gone(error) or self._merged_before() is None:
                raise
            return replace(staged, superseded=True)
        finally:
            task.close()
        return replace(staged, messages=messages, rejected=task.rejected)

    def merge(self, staged: Sequence[Staged], batch_id: int | None = None) -> LoadResult:
        """Enqueue the staged rows, unless another run has enqueued them, and clean up. The driver calls this."""
        if self.stage is None:
            assert self.before is not None  # noqa: S101 - without it there is a stage
            return self.before
        load = replace(self, stage=next((one.stage for one in staged), self.stage))
        try:
            result = load._merge(staged, batch_id)  # noqa: SLF001 - it is the same class
        finally:
            self.drop(staged)
        # If the micro-batch was merged before, other tables of the job may belong to the next micro-batch.
        if result.merged or batch_id is None:
            self.drop_left_behind({one.stage for one in staged})
        return result

    def _merge(self, staged: Sequence[Staged], batch_id: int | None) -> LoadResult:
        if any(one.superseded for one in staged) and (before := self._merged_before()):
            return before
        self._refuse_bad_rows(staged)
        if self.rejects is not None:
            kept = {one.partition: one.attempt for one in staged if one.rejected}
            self.rejects.publish(self.installation.schema, self.options.queue, self.job_id, batch_id, kept)
        try:
            return self._merge_once(staged, batch_id)
        except FairQueueError as error:
            if batch_id is None and _stage_is_gone(error) and (before := self._merged_before()):
                return before
            raise

    def _merge_once(self, staged: Sequence[Staged], batch_id: int | None) -> LoadResult:
        """Enqueue the staged rows once, in one transaction, after transactions that create their channels.

        After an error that may pass, such as a lost connection, a lock timeout or a deadlock, tries go on for two
        minutes. If this raises an error, nothing was enqueued, unless a try lost its connection.
        """
        action = f"merge job {self.job_id!r}" + (f", batch {batch_id}" if batch_id is not None else "")
        started = monotonic()
        for tried in range(1_000):
            try:
                with (
                    translated_errors(action),
                    contextlib.closing(connect(self.options, "merge", autocommit=True)) as connection,
                ):
                    for setting in _SETTINGS:
                        connection.execute(setting.encode())
                    return self._enqueue(connection, staged, batch_id)
            except Exception as error:
                if not _is_transient(error) or monotonic() - started > _RETRY_SECONDS:
                    raise
            Event().wait(_PAUSE_SECONDS[min(tried, len(_PAUSE_SECONDS) - 1)])
        raise AssertionError

    def _enqueue(self, connection: psycopg.Connection, staged: Sequence[Staged], batch_id: int | None) -> LoadResult:
        options, stage = self.options, self.existing_stage.name
        policy = new_policy_json(options.policy)
        attempts = [one.attempt for one in staged]

        def do(function: str, **values: object) -> list[tuple[Any, ...]]:
            of_all = {"queue": options.queue, "stage": stage, "attempts": attempts}
            return call(connection, self.installation, function, **of_all, **values)

        made = _CHANNELS_AT_ONCE
        while made == _CHANNELS_AT_ONCE:
            [(made,)] = do("fq_make_stage_channels", limit=_CHANNELS_AT_ONCE, policy=policy)
        connection.execute("begin isolation level read committed")
        [merged] = do(
            "fq_merge", job_id=self.job_id, messages=sum(one.messages for one in staged), batch_id=batch_id,
            source=None if batch_id is None else next((one.source for one in staged), None),
            on_duplicate=options.on_duplicate, rejected=sum(one.rejected for one in staged), notify=True,
        )  # fmt: skip
        if merged[0] and "group" in self.columns.indexes:
            do("fq_make_load_groups", policy=policy, **options.followups())
        connection.execute("commit")
        return LoadResult(self.job_id, *merged)

    def drop(self, staged: Iterable[Staged | None] = ()) -> None:
        for stage in {self.stage, *(one.stage for one in staged if one is not None)}:
            if stage is not None:
                drop_stage(self.options, stage)
                self._delete_rejects(stage)

    def drop_left_behind(self, own: Collection[Stage | None] = ()) -> None:
        left = [stage for stage in self.left if stage not in own]
        if not left:
            return
        # The messages are enqueued already. The next run, or a load after staging_ttl, drops a table that remains.
        with contextlib.suppress(FairQueueError, psycopg.Error):
            with contextlib.closing(connect(self.options, "cleanup", autocommit=True)) as connection:
                dropped = drop_left_behind(connection, left)
            for stage in dropped:
                self._delete_rejects(stage)

    def _delete_rejects(self, stage: Stage) -> None:
        if self.options.rejects_path is not None:
            with contextlib.suppress(OSError, pa.ArrowException, BadOption):
                RejectedRows(self.options.rejects_path, stage.name).delete_work()

    def _merged_before(self) -> LoadResult | None:
        with contextlib.closing(connect(self.options, "load", autocommit=True)) as connection:
            return committed(connection, self.installation, self.options.queue, self.job_id)

    @property
    def existing_stage(self) -> Stage:
        assert self.stage is not None  # noqa: S101 - merge() has checked it
        return self.stage

    @property
    def rejects(self) -> RejectedRows | None:
        if self.options.rejects_path is None or self.stage is None:
            return None
        return RejectedRows(self.options.rejects_path, self.stage.name)

    def _refuse_bad_rows(self, staged: Sequence[Staged]) -> None:
        examples = tuple(example for one in staged for example in one.examples)
        if examples:
            raise BadRows(
                f"rows of job {self.job_id!r} have bad values, and nothing was enqueued; correct them, or reject them "
                "with badRows=reject and rejectsPath",
                examples[:EXAMPLES],
            )


def _stage_is_gone(error: FairQueueError) -> bool:
    return isinstance(error.__cause__, psycopg.errors.UndefinedTable)


class _Task:
    def __init__(self, load: Load, attempt: int) -> None:
        self.examples: list[str] = []
        self.rejected = 0
        self._load = load
        self._given: pa.RecordBatch | None = None
        self._rejects = RejectedRowsWriter(load.rejects, attempt) if load.rejects else None

    def good_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Sequence[pa.Array]]:
        """Yield the rows without a known problem, as columns. Raise _BadRowFound at a bad row that fails the load."""
        for batch in self._slices(batches):
            columns, problems = self._load.columns.rows(batch)
            self._given = batch
            if problems:
                self._reject(batch, problems)
                good = pa.array([target not in problems for target in range(batch.num_rows)])
                columns = [column.filter(good) for column in columns]
                self._given = batch.filter(good)
            yield columns

    def refuse(self, problems: Problems) -> None:
        """Reject rows of the batch that good_rows yielded last. Raise _BadRowFound if bad rows fail the load."""
        assert self._given is not None  # noqa: S101 - rows are refused after they were given
        self._reject(self._given, problems)

    def collect_examples(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in self._slices(batches):
            if len(self.examples) >= EXAMPLES:
                return
            _, problems = self._load.columns.rows(batch)
            self._show(batch, problems)

    def close(self) -> None:
        if self._rejects is not None:
            self._rejects.close()

    def _slices(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        size = self._load.options.staging_rows
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)

    def _reject(self, batch: pa.RecordBatch, problems: Problems) -> None:
        if self._rejects is None:
            self._show(batch, problems)
            raise _BadRowFound
        self.rejected += len(problems)
        self._rejects.add(batch, problems)

    def _show(self, batch: pa.RecordBatch, problems: Problems) -> None:
        channels = batch.column(self._load.columns.indexes["channel"]).cast(pa.binary())
        for target in sorted(problems)[: EXAMPLES - len(self.examples)]:
            name = channels[target].as_py()
            channel = None if name is None else name.decode(errors="replace")
            self.examples.append(f"channel {channel!r:.80}: {problems[target]}")


def begin(options: WriteOptions, columns: Columns, *, stream: bool = False) -> Load:
    """Begin a run and create its stage. If *stream* is False and the load was committed before, create no stage.

    Raises:
        BadOption: The option *rejects_path* is a URI that pyarrow cannot use.
        PipelineError, SchemaMismatch: The server is unreachable, or has no usable installation.
    """
    if options.rejects_path is not None:
        file_system(options.rejects_path)
    job_id = options.job_id or str(uuid.uuid4())
    with contextlib.closing(connect(options, "load", autocommit=True)) as connection:
        installation = find_installation(connection, options.schema)
        left = tuple(job_stages(connection, installation, options))
        known = None if stream else committed(connection, installation, options.queue, job_id)
        if known is not None:
            merged = Load(options, columns, installation, job_id, None, known, left)
            merged.drop_left_behind()
            return merged
        stage = make_stage(connection, installation, options)
        return Load(options, columns, installation, job_id, stage, left=left)


def _is_transient(error: Exception) -> bool:
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    # A server is unreachable while it restarts.
    return isinstance(error, Unreachable) or is_away(cause) or is_serialization_failure(cause)
