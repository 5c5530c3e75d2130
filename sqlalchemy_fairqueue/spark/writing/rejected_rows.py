"""Writes rejected rows to ``PATH/schema=SCHEMA/queue=QUEUE/job_id=JOB[/batch_id=N]/part-PARTITION.parquet``.

The folder is named after the load and, in a stream, its batch, so that a repeated load replaces only its own files.
Tasks write to a folder of their run that readers ignore. Before the driver merges, it moves the files of successful
task attempts to the load's folder, so that the rejected rows of a merged load are always there.
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

    from sqlalchemy_fairqueue.spark.writing.columns import Problems

PROBLEM = "problem"

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_CREDENTIALS = re.compile(r"//[^/]*@")
# In a folder's name only ASCII characters are escaped, and others stay unchanged: Spark and Hive read %XX as a
# character, not as a byte of UTF-8.
_SPECIAL = re.compile(r"[\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """The rejected rows of one run. *path* is the folder or URI that the user gave, *run* the run's unique name."""

    path: str
    run: str

    def publish(self, schema: str, queue: str, job_id: str, batch_id: int | None, attempts: Mapping[int, int]) -> None:
        """Replace the files in the load's folder by those of *attempts*, the successful task attempts by partition."""
        files, root = file_system(self.path)
        names = {"schema": schema, "queue": queue, "job_id": job_id}
        folder = "/".join((root, *(f"{name}={_escaped(value)}" for name, value in names.items())))
        folder += "" if batch_id is None else f"/batch_id={batch_id}"
        with contextlib.suppress(FileNotFoundError):
            files.delete_dir(folder)
        for partition, attempt in attempts.items():
            files.create_dir(folder)
            files.move(self.file(root, attempt), f"{folder}/part-{partition:05}.parquet")
        self.delete_work()

    def delete_work(self) -> None:
        files, root = file_system(self.path)
        with contextlib.suppress(FileNotFoundError):
            files.delete_dir(self._folder(root))

    def file(self, root: str, attempt: int) -> str:
        return f"{self._folder(root)}/{attempt}.parquet"

    def _folder(self, root: str) -> str:
        # Readers of Parquet pass over names that begin with an underscore.
        return f"{root}/_{self.run}"


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    if not _URI.match(path):
        return fs.LocalFileSystem(), path.rstrip("/")
    try:
        files, root = fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError) as error:
        problem = str(error).partition("\n")[0].replace(path, "the URI")
        raise BadOption(
            f"option rejectsPath is {_CREDENTIALS.sub('//***@', path)!r}: {problem}; give a folder, or a URI that "
            "pyarrow can write to: file, s3 (not s3a), gs, hdfs or abfss"
        ) from None
    return files, root.rstrip("/")


def _escaped(name: str) -> str:
    return _SPECIAL.sub(lambda found: quote(found[0], safe=""), name)


class RejectedRowsWriter:
    """The file of one task, opened at its first bad row."""

    def __init__(self, rejects: RejectedRows, attempt: int) -> None:
        self._rejects = rejects
        self._attempt = attempt
        self._file: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch, problems: Problems) -> None:
        indexes = pa.array(sorted(problems), pa.int64())
        rows = pa.Table.from_batches([batch]).take(indexes)
        rows = rows.append_column(PROBLEM, pa.array([problems[index] for index in sorted(problems)], pa.string()))
        if self._file is None:
            files, root = file_system(self._rejects.path)
            path = self._rejects.file(root, self._attempt)
            files.create_dir(path.rpartition("/")[0])
            self._file = pq.ParquetWriter(path, rows.schema, filesystem=files)
        self._file.write_table(rows)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
