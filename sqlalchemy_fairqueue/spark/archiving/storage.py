"""An archive's files, on whatever file system Spark knows, through Hadoop's own interface.

Nothing is ever written in place: files are made in a folder that readers pass over, and renamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from sqlalchemy_fairqueue.spark.archiving.errors import ArchiveBusy, ArchiveDamaged, ArchiveError
from sqlalchemy_fairqueue.spark.archiving.marker import NAME, Marker, read_marker
from sqlalchemy_fairqueue.spark.archiving.names import Piece, piece

if TYPE_CHECKING:
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
        """Whose archive it is; None: there is none yet.

        Raises:
            ArchiveDamaged: The folder holds other things, or the marker cannot be read.
        """
        place = self._at(NAME)
        if self._files.exists(place):
            stream = self._files.open(place)
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

    def mark(self, marker: Marker, *, new: bool) -> None:
        """Say whose archive it is; a new marker replaces none that another process made meanwhile."""
        work = self._at(_WORK, f"marker-{marker.archive}")
        stream = self._files.create(work, True)
        try:
            stream.write(marker.text().encode())
        finally:
            stream.close()
        self._rename(work, self._at(NAME), self._keep if new else self._replace)

    def pieces(self) -> list[Piece]:
        """Every file of the archive.

        Raises:
            ArchiveDamaged: There are others.
        """
        folders = [name for name in self._names(self._root) if not name.startswith(("_", "."))]
        return [
            piece(folder, file)
            for folder in folders
            for file in self._names(self._at(folder))
            if not file.startswith(("_", "."))
        ]

    def write(self, rows: DataFrame, one: Piece) -> int:
        """Write the file of a piece where no reader sees it; how many rows it has."""
        place = self._at(_WORK, one.folder)
        # One file, whatever the session says.
        rows.write.mode("overwrite").option("maxRecordsPerFile", "0").parquet(str(place))
        return self._spark.read.parquet(str(place)).count()

    def publish(self, one: Piece) -> None:
        """Show the file of a piece to readers, at once and whole; an existing one is never replaced."""
        work = self._at(_WORK, one.folder)
        written = [name for name in self._names(work) if name.startswith("part-")]
        if len(written) != 1:
            raise ArchiveError(
                f"Spark wrote {len(written)} files for {one.folder} instead of one; run the archive again"
            )
        self._files.mkdirs(self._at(one.folder))
        self._rename(self._fs.Path(work, written[0]), self._at(one.folder, one.file), self._keep)

    def clean(self) -> None:
        """Take away what runs that died had begun."""
        self._files.delete(self._at(_WORK), True)

    def _at(self, *names: str) -> Any:
        place = self._root
        for name in names:
            place = self._fs.Path(place, name)
        return place

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
            raise ArchiveError(
                f"{name} could not be put in its place in {self._root}; run the archive again"
            ) from error
