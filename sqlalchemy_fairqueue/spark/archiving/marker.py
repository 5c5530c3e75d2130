"""Marker of an archive, ``_fairqueue.json``: the history that it is of. Readers of Parquet ignore the file."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, replace

from sqlalchemy_fairqueue.spark.archiving.errors import ArchiveDamaged
from sqlalchemy_fairqueue.spark.reading.offsets import Origin

NAME = "_fairqueue.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of the marker.

    Attributes:
        archive: A random name, which processes lock.
        origin: The history that is archived.
        pruned: The entry of ``fq_pruned_history`` up to which pruned rows are of no concern.
    """

    archive: str
    origin: Origin
    pruned: int

    def text(self) -> str:
        """The text of the file."""
        return json.dumps({"format": _FORMAT, "archive": self.archive, "pruned": self.pruned, **asdict(self.origin)})

    def updated(self, origin: Origin, pruned: int) -> Marker:
        """The same archive, continued with another origin or another entry of pruned rows."""
        return replace(self, origin=origin, pruned=pruned)


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
        archive, pruned = str(raw_options.pop("archive")), int(raw_options.pop("pruned"))
        return Marker(archive, Origin(**raw_options), pruned)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ArchiveDamaged(f"{NAME} cannot be read; put it back, or archive to another folder") from None
