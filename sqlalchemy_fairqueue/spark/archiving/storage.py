"""Storage of an archive's files, on any file system that Spark knows, through Hadoop's interface.

Nothing is written in place: files are written to a folder that readers ignore, and renamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from sqlalchemy_fairqueue.spark.archiving.errors import ArchiveBusy, ArchiveDamaged, ArchiveError
from sqlalchemy_fairqueue.spark.archiving.files import ArchiveFile, archive_file
from sqlalchemy_fairqueue.spark.archiving.marker import NAME, Marker, read_marker
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, frame_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

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
        """The marker of the archive; None: there is no archive yet.

        Raises:
            ArchiveDamaged: The folder holds other things, or the marker cannot be read.
        """
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
        """Write the marker; a new one never replaces that of another process."""
        work = self._at(_WORK, f"marker-{marker.archive}")
        stream = self._files.create(work, True)
        try:
            stream.write(marker.text().encode())
        finally:
            stream.close()
        self._rename(work, self._at(NAME), self._keep if new else self._replace)

    def archive_files(self) -> list[ArchiveFile]:
        """Every file of the archive.

        Raises:
            ArchiveDamaged: The archive has files of other names.
        """
        folders = [name for name in self._names(self._root) if not name.startswith(("_", "."))]
        return [
            archive_file(folder, file)
            for folder in folders
            for file in self._names(self._at(folder))
            if not file.startswith(("_", "."))
        ]

    def read(self, archive_files: Iterable[ArchiveFile]) -> DataFrame:
        """The rows of some files."""
        paths = [str(self._at(one.folder, one.file)) for one in archive_files]
        return self._spark.read.schema(frame_schema(HISTORY, ())).parquet(*paths)

    def remove(self, file: ArchiveFile) -> None:
        """Remove a file whose rows another file holds."""
        self._files.delete(self._at(file.folder, file.file), False)

    def write(self, rows: DataFrame, file: ArchiveFile) -> int:
        """Write a file where no reader sees it; returns the number of its rows."""
        path = self._at(_WORK, file.folder)
        # One file: the session's own limit does not count.
        rows.write.mode("overwrite").option("maxRecordsPerFile", "0").parquet(str(path))
        return self._spark.read.parquet(str(path)).count()

    def publish(self, file: ArchiveFile) -> None:
        """Make a file visible to readers by a rename; an existing one is never replaced."""
        work = self._at(_WORK, file.folder)
        written = [name for name in self._names(work) if name.startswith("part-")]
        if len(written) != 1:
            raise ArchiveError(
                f"Spark wrote {len(written)} files for {file.folder} instead of one; run the archive again"
            )
        self._files.mkdirs(self._at(file.folder))
        self._rename(self._fs.Path(work, written[0]), self._at(file.folder, file.file), self._keep)

    def clean(self) -> None:
        """Remove unfinished files of runs that died."""
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
