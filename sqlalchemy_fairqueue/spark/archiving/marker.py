"""Whose archive a folder is: ``_fairqueue.json``, which readers of Parquet pass over."""

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
    """What the file says.

    Attributes:
        archive: A random name: what processes lock.
        origin: Which history is archived.
        pruned: The entry of ``fq_pruned_history`` up to which what was taken away is of no concern.
    """

    archive: str
    origin: Origin
    pruned: int

    def text(self) -> str:
        """As it is written."""
        return json.dumps({"format": _FORMAT, "archive": self.archive, "pruned": self.pruned, **asdict(self.origin)})

    def of(self, origin: Origin, pruned: int) -> Marker:
        """The same archive, gone on with another history, or without what was taken away."""
        return replace(self, origin=origin, pruned=pruned)


def new_marker(origin: Origin, pruned: int) -> Marker:
    """For a new archive."""
    return Marker(secrets.token_hex(8), origin, pruned)


def read_marker(text: str) -> Marker:
    """What the file says.

    Raises:
        ArchiveDamaged: It cannot be read.
    """
    try:
        words = json.loads(text)
        if words.pop("format") != _FORMAT:
            raise ArchiveDamaged(f"{NAME} is of another format than {_FORMAT}; upgrade this library")
        archive, pruned = str(words.pop("archive")), int(words.pop("pruned"))
        return Marker(archive, Origin(**words), pruned)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ArchiveDamaged(f"{NAME} cannot be read; put it back, or archive to another folder") from None
