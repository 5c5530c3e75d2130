"""Rows that were kept back, as Parquet: ``PATH/job_id=JOB[/batch_id=N]/part-PARTITION.parquet``.

Where they are depends on the job alone, so that a job that is run again writes them anew instead of twice. Tasks write
into a folder of their run that readers pass over; the driver puts what counts in place before it merges, for a row
must never be in neither.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy_fairqueue.spark.writing.contents import Problems

PROBLEM = "problem"
"""The column that says what is wrong, after the frame's own."""


@dataclass(frozen=True, slots=True)
class Rejects:
    """Where the rejects of one run go.

    Attributes:
        path: The folder or URI that the user named.
        run: Something that no other run has.
    """

    path: str
    run: str

    def writer(self, attempt: int) -> RejectsWriter:
        """For one task."""
        return RejectsWriter(self, attempt)

    def keep(self, job_id: str, batch_id: int | None, attempts: Mapping[int, int]) -> None:
        """Put the files of the attempts that count where readers find them, instead of what the job left there before.

        Args:
            job_id: The job.
            batch_id: The micro-batch of a stream.
            attempts: The attempt of each partition that has any.
        """
        files, root = self._place()
        folder = f"{root}/job_id={quote(job_id, safe='')}" + ("" if batch_id is None else f"/batch_id={batch_id}")
        with contextlib.suppress(FileNotFoundError):
            files.delete_dir(folder)
        for partition, attempt in attempts.items():
            files.create_dir(folder)
            files.move(self.file(root, attempt), f"{folder}/part-{partition:05}.parquet")
        self.forget()

    def forget(self) -> None:
        """Delete what the run has left in its own folder."""
        files, root = self._place()
        with contextlib.suppress(FileNotFoundError):
            files.delete_dir(self._folder(root))

    def file(self, root: str, attempt: int) -> str:
        """The file of one task."""
        return f"{self._folder(root)}/{attempt}.parquet"

    def _folder(self, root: str) -> str:
        # Readers of Parquet pass over names that begin with an underscore.
        return f"{root}/_{self.run}"

    def _place(self) -> tuple[fs.FileSystem, str]:
        files, root = fs.FileSystem.from_uri(self.path) if "://" in self.path else (fs.LocalFileSystem(), self.path)
        return files, root.rstrip("/")


class RejectsWriter:
    """The file of one task, opened at its first bad row."""

    def __init__(self, rejects: Rejects, attempt: int) -> None:
        self._rejects = rejects
        self._attempt = attempt
        self._file: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch, problems: Problems) -> None:
        """Keep the rows that have problems."""
        places = pa.array(sorted(problems), pa.int64())
        rows = pa.Table.from_batches([batch]).take(places)
        rows = rows.append_column(PROBLEM, pa.array([problems[place] for place in sorted(problems)], pa.string()))
        if self._file is None:
            files, root = self._rejects._place()  # noqa: SLF001 - the two are one
            path = self._rejects.file(root, self._attempt)
            files.create_dir(path.rpartition("/")[0])
            self._file = pq.ParquetWriter(path, rows.schema, filesystem=files)
        self._file.write_table(rows)

    def close(self) -> None:
        """Write the end of the file."""
        if self._file is not None:
            self._file.close()
