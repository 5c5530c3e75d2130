"""Marker of an archive, ``_fairqueue.json``: the history that it is of. Readers of Parquet ignore the file."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, replace

from sqlalchemy_fairqueue.spark.archiving.errors import ArchiveDamaged
from sqlalchemy_fairqueue.spark.reading.offsets import Origin

NAME = "_fairqueue.json"
_FORMAT = 1
COLUMNS_VERSION = 2
"""The version of the columns that runs write: 0 had no ``cost``, 1 no ``group``."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of the marker.

    Attributes:
        archive: A random name, which processes lock.
        origin: The history that is archived.
        pruned: The entry of ``fq_pruned_history`` up to which pruned rows are of no concern.
        columns: The version of the columns of its newest files. Older files lack what came later.
    """

    archive: str
    origin: Origin
    pruned: int
    columns: int = COLUMNS_VERSION

    def text(self) -> str:
        """The text of the file."""
        own = {"format": _FORMAT, "columns": self.columns, "archive": self.archive, "pruned": self.pruned}
        return json.dumps({**own, **asdict(self.origin)})

    def updated(self, origin: Origin, pruned: int) -> Marker:
        """The same archive, continued with another origin, another entry of pruned rows, and today's columns."""
        return replace(self, origin=origin, pruned=pruned, columns=COLUMNS_VERSION)


def new_marker(origin: Origin, pruned: int) -> Marker:
    """The marker of a new archive."""
    return Marker(secrets.token_hex(8), origin, pruned)


def read_marker(text: str) -> Marker:
    """The marker in the text of the file.

    Raises:
        ArchiveDamaged: It cannot be read.
    """
    try:
        raw_options = json.loads(text)
        if raw_options.pop("format") != _FORMAT:
            raise ArchiveDamaged(f"{NAME} is of another format than {_FORMAT}; upgrade this library")
        columns = int(raw_options.pop("columns", 0))
        if columns > COLUMNS_VERSION:
            raise ArchiveDamaged(
                f"{NAME} is of version {columns} of the columns, and this library writes version {COLUMNS_VERSION}; "
                "upgrade it"
            )
        archive, pruned = str(raw_options.pop("archive")), int(raw_options.pop("pruned"))
        return Marker(archive, Origin(**raw_options), pruned, columns)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ArchiveDamaged(f"{NAME} cannot be read; put it back, or archive to another folder") from None
