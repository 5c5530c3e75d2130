"""One run of a load: what tasks do with their rows, and what the driver does with what the tasks say.

A value of this class travels to the executors; it holds no connection.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from sqlalchemy_fairqueue.spark.connecting import connect, installation
from sqlalchemy_fairqueue.spark.errors import BadOption, BadRows, PipelineError
from sqlalchemy_fairqueue.spark.writing.merging import Attempts, LoadResult, committed, merge
from sqlalchemy_fairqueue.spark.writing.rejects import Rejects, files_of
from sqlalchemy_fairqueue.spark.writing.staging import Stage, copy_rows, drop_stage, make_stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy_fairqueue.spark.connecting import Installation
    from sqlalchemy_fairqueue.spark.writing.columns import Columns
    from sqlalchemy_fairqueue.spark.writing.settings import WriteOptions

EXAMPLES = 10
"""How many bad rows an error shows."""

_QUERY = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task says when it is done.

    Attributes:
        partition: Which part of the frame.
        attempt: What its rows are marked with.
        messages: How many rows it has staged.
        rejected: How many it has kept back.
        examples: Bad rows in words, if the load is to fail for them.
        source: The streaming query, which goes with its checkpoint.
        stage: Where it has staged them: of a micro-batch Spark makes a writer for the tasks and another for the commit.
    """

    partition: int
    attempt: int
    messages: int
    rejected: int
    examples: tuple[str, ...]
    source: str | None
    stage: Stage | None


class _Bad(Exception):
    """Stop copying: the load is to fail."""


@dataclass(frozen=True, slots=True)
class Load:
    """A run.

    Attributes:
        options: How.
        columns: What of.
        found: Where.
        job_id: What the load is known by.
        stage: Where tasks copy to; None if the job was committed before, so that nothing is to be done.
        before: What became of it then.
    """

    options: WriteOptions
    columns: Columns
    found: Installation
    job_id: str
    stage: Stage | None
    before: LoadResult | None = None

    def stage_rows(self, batches: Iterable[pa.RecordBatch]) -> Staged:
        """A task: copy its rows into the stage, and keep bad ones back."""
        context = TaskContext.get()
        if context is None:
            raise PipelineError("rows are staged by tasks of Spark; call this from one")
        staged = Staged(
            context.partitionId(),
            context.taskAttemptId(),
            0,
            0,
            (),
            context.getLocalProperty(_QUERY) or None,
            self.stage,
        )
        if self.stage is None:
            return staged
        task = _Task(self, staged.attempt)
        rest = iter(batches)
        try:
            messages = copy_rows(self.options, self.stage, staged.attempt, self.columns.staged, task.good_rows(rest))
        except _Bad:
            task.look_on(rest)
            return replace(staged, examples=tuple(task.examples))
        finally:
            task.close()
        return replace(staged, messages=messages, rejected=task.rejected)

    def merge(self, staged: Sequence[Staged], batch_id: int | None = None) -> LoadResult:
        """The driver: enqueue what the tasks have staged, all or nothing, and tidy up."""
        if self.stage is None:
            assert self.before is not None  # noqa: S101 - without it there is a stage
            return self.before
        load = replace(self, stage=next((one.stage for one in staged), self.stage))
        try:
            return load._merge(staged, batch_id)  # noqa: SLF001 - it is the same class
        finally:
            self.drop(staged)

    def _merge(self, staged: Sequence[Staged], batch_id: int | None) -> LoadResult:
        self._refuse_bad_rows(staged)
        if self.rejects is not None:
            kept = {one.partition: one.attempt for one in staged if one.rejected}
            self.rejects.keep(self.found.schema, self.options.queue, self.job_id, batch_id, kept)
        attempts = Attempts(
            tuple(one.attempt for one in staged),
            sum(one.messages for one in staged),
            sum(one.rejected for one in staged),
        )
        source = None if batch_id is None else next((one.source for one in staged), None)
        return merge(self.options, self.found, self.made, self.job_id, attempts, batch_id, source)

    def drop(self, staged: Iterable[Staged | None] = ()) -> None:
        """Tidy up after success and failure alike."""
        for stage in {self.stage, *(one.stage for one in staged if one is not None)} - {None}:
            load = replace(self, stage=stage)
            drop_stage(self.options, load.made)
            if load.rejects is not None:
                with contextlib.suppress(OSError, pa.ArrowException, BadOption):
                    load.rejects.forget()

    @property
    def made(self) -> Stage:
        """The stage of a run that has one."""
        assert self.stage is not None  # noqa: S101 - asked only where it is
        return self.stage

    @property
    def rejects(self) -> Rejects | None:
        """Where bad rows go, if they are kept."""
        if self.options.rejects_path is None or self.stage is None:
            return None
        return Rejects(self.options.rejects_path, self.stage.name)

    def _refuse_bad_rows(self, staged: Sequence[Staged]) -> None:
        examples = tuple(example for one in staged for example in one.examples)
        if examples:
            raise BadRows(
                f"rows of job {self.job_id!r} have bad values, and nothing was enqueued; mend them, or keep them back "
                "by badRows=reject and rejectsPath",
                examples[:EXAMPLES],
            )


class _Task:
    """The rows of one task, told apart."""

    def __init__(self, load: Load, attempt: int) -> None:
        self.examples: list[str] = []
        self.rejected = 0
        self._load = load
        self._rejects = load.rejects.writer(attempt) if load.rejects else None

    def good_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Sequence[pa.Array]]:
        """The rows that can be enqueued, as columns. Raises _Bad at a bad one if the load is to fail."""
        for batch in self._slices(batches):
            columns, problems = self._load.columns.rows(batch)
            if not problems:
                yield columns
                continue
            if self._rejects is None:
                self._show(batch, problems)
                raise _Bad
            self.rejected += len(problems)
            self._rejects.add(batch, problems)
            good = pa.array([place not in problems for place in range(batch.num_rows)])
            yield [column.filter(good) for column in columns]

    def look_on(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Look for further bad rows until there are enough to show."""
        for batch in self._slices(batches):
            if len(self.examples) >= EXAMPLES:
                return
            _, problems = self._load.columns.rows(batch)
            self._show(batch, problems)

    def close(self) -> None:
        """Write what was kept back."""
        if self._rejects is not None:
            self._rejects.close()

    def _slices(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        size = self._load.options.staging_rows
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)

    def _show(self, batch: pa.RecordBatch, problems: dict[int, str]) -> None:
        channels = batch.column(self._load.columns.places["channel"])
        for place in sorted(problems)[: EXAMPLES - len(self.examples)]:
            self.examples.append(f"channel {channels[place].as_py()!r:.80}: {problems[place]}")


def begin(options: WriteOptions, columns: Columns, *, stream: bool = False) -> Load:
    """Begin a run: look whether it was done before, and make its stage.

    Raises:
        BadOption: Rejects cannot be written where they are to go.
        PipelineError, SchemaMismatch: The server cannot be reached, or has no installation that can be used.
    """
    if options.rejects_path is not None:
        files_of(options.rejects_path)
    job_id = options.job_id or str(uuid.uuid4())
    with contextlib.closing(connect(options, "load", autocommit=True)) as connection:
        found = installation(connection, options.schema)
        if not stream and options.job_id is not None:
            known = committed(connection, found, options.queue, job_id)
            if known is not None and known[1] is None:
                return Load(options, columns, found, job_id, None, known[0])
        return Load(options, columns, found, job_id, make_stage(connection, found, options))
