"""Offsets of streams of changes: a position (LSN) in the WAL, and the database that it is of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.reading.offsets import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ChangeOffset:
    """A position in the WAL. Spark writes it to a checkpoint, as JSON.

    Attributes:
        origin: The cluster, its timeline, and the database with its history.
        lsn: All transactions whose commits end up to here were read.
    """

    origin: Origin
    lsn: int

    def as_dict(self) -> dict[str, Any]:
        """The fields as texts and numbers, always in the same order: Spark compares the JSON text."""
        return asdict(self.origin) | {"lsn": self.lsn}


def change_offset_of(words: Mapping[str, Any]) -> ChangeOffset:
    """The offset of these fields.

    Raises:
        BadOption: They are not an offset of changes.
    """
    try:
        origin = Origin(str(words["system"]), *(int(words[name]) for name in ("timeline", "database", "history")))
        return ChangeOffset(origin, int(words["lsn"]))
    except (KeyError, TypeError, ValueError):
        raise BadOption(
            f"the checkpoint's offset is {words!r:.200}, which is no offset of changes; a checkpoint belongs to one "
            "query: use another one"
        ) from None
