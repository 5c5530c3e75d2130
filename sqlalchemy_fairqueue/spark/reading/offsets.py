"""How far a reader of the history has come, and in which history.

A place in the history is ``(recorded_xid, id)``: the transaction that recorded an attempt, and the attempt's number
within the table. Ids commit out of order, so that a reader that goes on after the last id it saw loses rows. Below the
oldest transaction that is still open (``pg_snapshot_xmin``) nothing is added any more, so that places are final.
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
    """A place in the history: behind the row of this transaction and id.

    Attributes:
        xid: The transaction that recorded the row (``recorded_xid``).
        id: The row.
    """

    xid: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """Which history it is. Another cluster, a restored or a promoted one, another database have other origins.

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
    """A position, and what it is a position in. What Spark writes down in a checkpoint, as JSON.

    Attributes:
        origin: Which history.
        position: How far.
        pruned: The last entry of ``fq_pruned_history`` when it was made: what was taken away before is of no concern.
    """

    origin: Origin
    position: Position
    pruned: int

    def as_dict(self) -> dict[str, Any]:
        """Plain words and numbers, always in the same order: Spark compares the text."""
        return asdict(self.origin) | asdict(self.position) | {"pruned": self.pruned}

    def __str__(self) -> str:
        """As the options startingOffsets and endingOffsets take it."""
        return json.dumps(self.as_dict())


def offset_of(words: Mapping[str, Any], source: str = "the checkpoint's offset") -> Offset:
    """The offset that was written as these words.

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
            f"{source} is {words!r:.200}, which is no offset of the history; give one as it was given out"
        ) from None


def read_offset(text: str, source: str, instead: str = "") -> Offset:
    """The offset that was written as this text.

    Args:
        text: JSON.
        source: Where it comes from, for the message.
        instead: What could have been given as well, for the message.

    Raises:
        BadOption: It is not an offset.
    """
    try:
        words = json.loads(text)
    except ValueError:
        raise BadOption(f"{source} is {text!r:.80}; give {instead}an offset as JSON") from None
    return offset_of(words if isinstance(words, dict) else {}, source)
