"""The names of an archive's files, which are its memory.

``day=2026-11-20/history-0-8123.parquet`` holds the attempts that finished on that UTC day, were recorded by
transactions from 0 to 8123 (excluded), and nothing else; ``history-8123-9001.parquet`` beside it what was recorded of
that day later. So one rename makes rows visible and remembers them as archived.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.archiving.errors import ArchiveDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DAY = 86_400_000_000
_FOLDER = re.compile(r"day=(\d{4}-\d{2}-\d{2})")
_FILE = re.compile(r"history-(\d+)-(\d+)\.parquet")
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """One file.

    Attributes:
        day: The UTC day, in days since the epoch.
        low: The first transaction.
        high: The first transaction that is not of it.
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
    """The day so many days after the epoch."""
    return datetime.fromtimestamp(number * 86_400, UTC).date()


def piece(folder: str, file: str) -> Piece:
    """What the names say.

    Raises:
        ArchiveDamaged: They are no names of an archive.
    """
    day, span = _FOLDER.fullmatch(folder), _FILE.fullmatch(file)
    if day is None or span is None:
        raise ArchiveDamaged(f"{folder}/{file} is no file of an archive; move it away, or archive to another folder")
    return Piece((date.fromisoformat(day[1]) - _EPOCH).days, int(span[1]), int(span[2]))


def archived(pieces: Iterable[Piece]) -> Mapping[int, int]:
    """Up to which transaction each day is archived, excluded.

    Raises:
        ArchiveDamaged: The pieces of a day overlap or leave a gap.
    """
    reached: dict[int, int] = {}
    for one in sorted(pieces):
        if one.low != reached.get(one.day, 0) or one.high <= one.low:
            raise ArchiveDamaged(
                f"{one.folder}/{one.file} does not follow on transaction {reached.get(one.day, 0)}, up to which the "
                "day is archived: a file is missing, or there twice; put it back, or archive to another folder"
            )
        reached[one.day] = one.high
    return reached
