"""Offsets of readers of the history: a position, and the history that it is a position in.

A position in the history is ``(recorded_xid, id)``: the transaction that recorded an attempt, and the attempt's id. Ids
commit out of order, so that a reader that continues after the last id loses rows. Below the oldest transaction that is
still open (``pg_snapshot_xmin``) no rows are added any more, so that positions are final.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.spark.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in the history: after the row of this transaction and id.

    Attributes:
        xid: The transaction that recorded the row (``recorded_xid``).
        id: The row.
    """

    xid: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """The identity of a history. A restored or promoted cluster and another database have other origins.

    Attributes:
        system: The cluster's system identifier.
        timeline: Its timeline, which grows with each promotion and each recovery to a point in time.
        database: The object id of the database.
        history: The object id of the table.
    """

    system: str
    timeline: int
    database: int
    history: int

    def __str__(self) -> str:
        """As the option acceptedOrigin takes it."""
        return f"{self.system}/{self.timeline}/{self.database}/{self.history}"


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a history. Spark writes it to a checkpoint, as JSON.

    Attributes:
        origin: The history.
        position: The position.
        pruned: The last entry of ``fq_pruned_history`` when it was made: rows pruned before are of no concern.
    """

    origin: Origin
    position: Position
    pruned: int

    def as_dict(self) -> dict[str, Any]:
        """The fields as texts and numbers, always in the same order: Spark compares the JSON text."""
        return asdict(self.origin) | asdict(self.position) | {"pruned": self.pruned}

    def __str__(self) -> str:
        """As the options startingOffsets and endingOffsets take it."""
        return json.dumps(self.as_dict())


def offset_of(words: Mapping[str, Any], source: str = "the checkpoint's offset") -> Offset:
    """The offset of these fields.

    Raises:
        BadOption: They are not an offset.
    """
    try:
        return Offset(
            Origin(str(words["system"]), *(int(words[name]) for name in ("timeline", "database", "history"))),
            Position(*(int(words[one.name]) for one in fields(Position))),
            int(words["pruned"]),
        )
    except (KeyError, TypeError, ValueError):
        raise BadOption(
            f"{source} is {words!r:.200}, which is no offset of the history; give one as Spark or this library wrote it"
        ) from None


def read_offset(text: str, source: str, instead: str = "") -> Offset:
    """The offset in a JSON text.

    Args:
        text: JSON.
        source: The origin of the text, for the message.
        instead: Other values that are allowed, for the message.

    Raises:
        BadOption: It is not an offset.
    """
    try:
        words = json.loads(text)
    except ValueError:
        raise BadOption(f"{source} is {text!r:.80}; give {instead}an offset as JSON") from None
    return offset_of(words if isinstance(words, dict) else {}, source)
