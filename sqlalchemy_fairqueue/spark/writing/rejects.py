"""Rows that were kept back: ``PATH/schema=SCHEMA/queue=QUEUE/job_id=JOB[/batch_id=N]/part-PARTITION.parquet``.

Where they are depends on the load alone, as fq_load knows it, so that one that is run again writes them anew instead of
twice, and touches those of no other. Tasks write into a folder of their run that readers pass over; the driver puts
what counts in place before it merges, for a row must never be in neither.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from sqlalchemy_fairqueue.spark.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy_fairqueue.spark.writing.contents import Problems

PROBLEM = "problem"
"""The column that says what is wrong, after the frame's own."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_CREDENTIALS = re.compile(r"//[^/]*@")
# What Spark and Hive would read otherwise in a folder's name. They read %XX as a character, not as a byte of UTF-8, so
# that characters beyond ASCII stay as they are.
_SPECIAL = re.compile(r"[\x00-\x7f]")


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

    def keep(self, schema: str, queue: str, job_id: str, batch_id: int | None, attempts: Mapping[int, int]) -> None:
        """Put the files of the attempts that count where readers find them, instead of what the load left there before.

        Args:
            schema: Where the queue is installed.
            queue: The queue.
            job_id: The job.
            batch_id: The micro-batch of a stream.
            attempts: The attempt of each partition that has any.
        """
        files, root = self._place()
        names = {"schema": schema, "queue": queue, "job_id": job_id}
        folder = "/".join((root, *(f"{name}={_escaped(value)}" for name, value in names.items())))
        folder += "" if batch_id is None else f"/batch_id={batch_id}"
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
        return files_of(self.path)


def files_of(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a folder or URI, and the folder on it.

    Raises:
        BadOption: It is a URI of which pyarrow makes no file system.
    """
    if not _URI.match(path):
        return fs.LocalFileSystem(), path.rstrip("/")
    try:
        files, root = fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError) as error:
        said = str(error).partition("\n")[0].replace(path, "the URI")
        raise BadOption(
            f"option rejectsPath is {_CREDENTIALS.sub('//***@', path)!r}: {said}; give a folder, or a URI that pyarrow "
            "can write to: file, s3 (not s3a), gs, hdfs or abfss"
        ) from None
    return files, root.rstrip("/")


def _escaped(name: str) -> str:
    """A name as a folder's."""
    return _SPECIAL.sub(lambda found: quote(found[0], safe=""), name)


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
