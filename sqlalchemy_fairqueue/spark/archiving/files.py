"""Names of an archive's files, which record what is archived.

``day=2026-11-20/history-0-8123.parquet`` holds the attempts that finished on that UTC day, were recorded by
transactions from 0 to 8123 (excluded), and nothing else; ``history-8123-9001.parquet`` beside it holds those recorded
later. So one rename makes rows visible and records them as archived.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.reporting.archive_files import superseded
from sqlalchemy_fairqueue.spark.archiving.errors import ArchiveDamaged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

DAY = 86_400_000_000
_FOLDER = re.compile(r"day=(\d{4}-\d{2}-\d{2})")
_FILE = re.compile(r"history-(\d+)-(\d+)\.parquet")
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, order=True)
class ArchiveFile:
    """A file of an archive.

    Attributes:
        day: The UTC day, in days since the epoch.
        low: The first transaction.
        high: The first transaction after its last one.
    """

    day: int
    low: int
    high: int

    @property
    def folder(self) -> str:
        """The folder's name."""
        return f"day={day_of(self.day).isoformat()}"

    @property
    def file(self) -> str:
        """The file's name."""
        return f"history-{self.low}-{self.high}.parquet"


def day_of(number: int) -> date:
    """The date so many days after the epoch."""
    return datetime.fromtimestamp(number * 86_400, UTC).date()


def archive_file(folder: str, file: str) -> ArchiveFile:
    """The file of these names.

    Raises:
        ArchiveDamaged: They are no names of an archive.
    """
    day, key_range = _FOLDER.fullmatch(folder), _FILE.fullmatch(file)
    if day is None or key_range is None:
        raise ArchiveDamaged(f"{folder}/{file} is no file of an archive; move it away, or archive to another folder")
    return ArchiveFile((date.fromisoformat(day[1]) - _EPOCH).days, int(key_range[1]), int(key_range[2]))


def covered_files(archive_files: Collection[ArchiveFile]) -> list[ArchiveFile]:
    """The files whose rows another one holds: a run that compacted a day died before it removed them."""
    covered = superseded(f"{one.folder}/{one.file}" for one in archive_files)
    return [one for one in archive_files if f"{one.folder}/{one.file}" in covered]


def archived_through(archive_files: Iterable[ArchiveFile]) -> Mapping[int, int]:
    """The transaction up to which each day is archived, excluded.

    Raises:
        ArchiveDamaged: The files of a day overlap or leave a gap.
    """
    reached: dict[int, int] = {}
    for one in sorted(archive_files):
        if one.low != reached.get(one.day, 0) or one.high <= one.low:
            raise ArchiveDamaged(
                f"{one.folder}/{one.file} does not follow on transaction {reached.get(one.day, 0)}, up to which the "
                "day is archived: a file is missing, or there twice; put it back, or archive to another folder"
            )
        reached[one.day] = one.high
    return reached
