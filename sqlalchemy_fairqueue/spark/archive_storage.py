"""Stores an archive's files on any file system of Spark, through Hadoop's interface.

Files are written to a folder that readers ignore, and then renamed. Their names record what is archived.
``day=2026-11-20/history-0-8123.parquet`` has exactly the attempts that finished on that UTC day and were recorded by
transactions from 0 to 8123 (exclusive); ``history-8123-9001.parquet`` beside it has the attempts recorded later. So one
rename both publishes rows and records them as archived.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from sqlalchemy_fairqueue.reporting.history import ArchiveFile
from sqlalchemy_fairqueue.spark.errors import ArchiveBusy, ArchiveDamaged, ArchiveError
from sqlalchemy_fairqueue.spark.reading.offsets import Origin
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, frame_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

DAY = 86_400_000_000


def archived_through(archive_files: Iterable[ArchiveFile]) -> Mapping[int, int]:
    """Return for each day the transaction id below which all is archived; raise ArchiveDamaged at overlaps or gaps."""
    reached: dict[int, int] = {}
    for one in sorted(archive_files):
        if one.low != reached.get(one.day, 0) or one.high <= one.low:
            raise ArchiveDamaged(
                f"{one.path} does not follow on transaction {reached.get(one.day, 0)}, up to which the "
                "day is archived: a file is missing, or there twice; put it back, or archive to another folder"
            )
        reached[one.day] = one.high
    return reached


NAME = "_fairqueue.json"
_FORMAT = 1
COLUMNS_VERSION = 2
"""The version of the columns in new files. Version 0 had no ``cost``, version 1 no ``group``."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of the file ``_fairqueue.json``, which names the history of an archive.

    Attributes:
        pruned: The id of an entry of ``fq_pruned_history``. The next run looks for lost rows only in later entries.
        archive: A random name, which a process locks while it changes the archive.
        columns: The version of the columns in the archive's newest files. Older files lack newer columns.
    """

    origin: Origin
    pruned: int
    archive: str = field(default_factory=secrets.token_hex)
    columns: int = COLUMNS_VERSION

    def text(self) -> str:
        own = {"format": _FORMAT, "columns": self.columns, "archive": self.archive, "pruned": self.pruned}
        return json.dumps({**own, **asdict(self.origin)})

    def updated(self, origin: Origin, pruned: int) -> Marker:
        return replace(self, origin=origin, pruned=pruned, columns=COLUMNS_VERSION)


def read_marker(text: str) -> Marker:
    try:
        words = {"columns": 0} | json.loads(text)
        if words.pop("format") != _FORMAT:
            raise ArchiveDamaged(f"{NAME} is of another format than {_FORMAT}; upgrade this library")
        columns, archive, pruned = int(words.pop("columns")), str(words.pop("archive")), int(words.pop("pruned"))
        if columns > COLUMNS_VERSION:
            raise ArchiveDamaged(
                f"{NAME} is of version {columns} of the columns, and this library writes version {COLUMNS_VERSION}; "
                "upgrade it"
            )
        return Marker(Origin(**words), pruned, archive, columns)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ArchiveDamaged(f"{NAME} cannot be read; put it back, or archive to another folder") from None


_WORK = "_fairqueue_work"


class Storage:
    """The folder of an archive."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        try:
            jvm: Any = spark._jvm  # noqa: SLF001 - the only way from Python to the session's file systems
            configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        except (AttributeError, NotImplementedError) as error:
            raise ArchiveError(
                "archives need a classic Spark session: Spark Connect gives no access to file systems; run it with "
                "spark-submit or in a local session"
            ) from error
        self._spark = spark
        self._fs = jvm.org.apache.hadoop.fs
        given = self._fs.Path(path)
        self._files = given.getFileSystem(configuration)
        self._root = self._files.makeQualified(given)
        self._context = self._fs.FileContext.getFileContext(self._root.toUri(), configuration)
        options = self._fs.Options.Rename
        self._keep = spark.sparkContext._gateway.new_array(options, 1)  # type: ignore[union-attr]  # noqa: SLF001
        self._keep[0] = options.NONE
        self._replace = spark.sparkContext._gateway.new_array(options, 1)  # type: ignore[union-attr]  # noqa: SLF001
        self._replace[0] = options.OVERWRITE

    def marker(self) -> Marker | None:
        """Return the marker; None in an empty folder. Raise ArchiveDamaged for a bad marker, or files without one."""
        path = self._at(NAME)
        if self._files.exists(path):
            stream = self._files.open(path)
            try:
                return read_marker(bytes(stream.readAllBytes()).decode())
            finally:
                stream.close()
        others = [name for name in self._names(self._root) if name != _WORK]
        if others:
            raise ArchiveDamaged(
                f"{self._root} is no archive and not empty: it holds {others[0]}; give an empty folder"
            )
        return None

    def save_marker(self, marker: Marker, *, new: bool) -> None:
        """Write the archive's marker. If *new* is True, an existing marker raises ArchiveBusy; else it is replaced."""
        work = self._at(_WORK, f"marker-{marker.archive}")
        stream = self._files.create(work, True)
        try:
            stream.write(marker.text().encode())
        finally:
            stream.close()
        self._rename(work, self._at(NAME), self._keep if new else self._replace)

    def archive_files(self) -> list[ArchiveFile]:
        found = []
        for folder in filter(_is_shown, self._names(self._root)):
            for name in filter(_is_shown, self._names(self._at(folder))):
                if (file := ArchiveFile.named(f"{folder}/{name}")) is None:
                    raise ArchiveDamaged(
                        f"{folder}/{name} is no file of an archive; move it away, or archive to another folder"
                    )
                found.append(file)
        return found

    def read(self, archive_files: Iterable[ArchiveFile]) -> DataFrame:
        paths = [str(self._at(one.path)) for one in archive_files]
        return self._spark.read.schema(frame_schema(HISTORY, ())).parquet(*paths)

    def remove(self, file: ArchiveFile) -> None:
        self._files.delete(self._at(file.path), False)

    def write(self, rows: DataFrame, file: ArchiveFile) -> int:
        """Write a file where readers do not see it, and return the number of its rows."""
        path = self._at(_WORK, file.folder)
        # A limit of records in the session's settings could make several files.
        rows.write.mode("overwrite").option("maxRecordsPerFile", "0").parquet(str(path))
        return self._spark.read.parquet(str(path)).count()

    def publish(self, file: ArchiveFile) -> None:
        """Publish a file by a rename, which never replaces an existing file."""
        work = self._at(_WORK, file.folder)
        written = [name for name in self._names(work) if name.startswith("part-")]
        if len(written) != 1:
            raise ArchiveError(
                f"Spark wrote {len(written)} files for {file.folder} instead of one; run the archive again"
            )
        self._files.mkdirs(self._at(file.folder))
        self._rename(self._fs.Path(work, written[0]), self._at(file.path), self._keep)

    def clean(self) -> None:
        self._files.delete(self._at(_WORK), True)

    def _at(self, *names: str) -> Any:
        path = self._root
        for name in names:
            path = self._fs.Path(path, name)
        return path

    def _names(self, folder: Any) -> list[str]:
        if not self._files.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(folder))

    def _rename(self, source: Any, target: Any, options: Any) -> None:
        try:
            self._context.rename(source, target, options)
        except Py4JJavaError as error:
            name = target.getName()
            if "FileAlreadyExistsException" in str(error.java_exception.getClass().getName()):
                raise ArchiveBusy(
                    f"another process has just made {name} in {self._root}; run the archive again"
                ) from error
            raise ArchiveError(f"{name} could not be renamed in {self._root}; run the archive again") from error


def _is_shown(name: str) -> bool:
    # Readers of Parquet pass over these names.
    return not name.startswith(("_", "."))
