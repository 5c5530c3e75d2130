"""Offsets of readers of the history: a position, and the history that it belongs to.

A position is ``(recorded_xid, id)``: the transaction that recorded an attempt, and the attempt's id. Ids commit out of
order, so a reader that continued after the last id would lose rows. Below the oldest open transaction
(``pg_snapshot_xmin``) no more rows are added, so positions there are final. The stream of the table ``changes``
is read from the WAL. So its offsets have a position in the WAL (LSN) instead.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.spark.errors import BadOption, PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping


EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in the history: after the row *id* of transaction *xid* (``recorded_xid``)."""

    xid: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """The identity of a history: system identifier, timeline, and the object ids of database and table.

    A restored cluster, a promoted standby and another database have other origins.
    """

    system: str
    timeline: int
    database: int
    history: int

    def __str__(self) -> str:
        """Return the text that the option acceptedOrigin takes."""
        return f"{self.system}/{self.timeline}/{self.database}/{self.history}"


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a history. Spark writes it to a checkpoint, as JSON.

    *pruned* is the id of the last entry of ``fq_pruned_history`` when the offset was made. A reader that goes on from
    the offset looks for lost rows only in later entries.
    """

    origin: Origin
    position: Position
    pruned: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as texts and numbers, always in the same order, since Spark compares the JSON text."""
        return asdict(self.origin) | asdict(self.position) | {"pruned": self.pruned}

    def __str__(self) -> str:
        """Return the text for the options startingOffsets and endingOffsets."""
        return json.dumps(self.as_dict())


def offset_of(words: Mapping[str, Any], source: str = "the checkpoint's offset") -> Offset:
    try:
        return Offset(_origin_of(words), Position(int(words["xid"]), int(words["id"])), int(words["pruned"]))
    except (KeyError, TypeError, ValueError):
        raise BadOption(
            f"{source} is {words!r:.200}, which is no offset of the history; give one as Spark or this library wrote it"
        ) from None


def _origin_of(words: Mapping[str, Any]) -> Origin:
    return Origin(str(words["system"]), *(int(words[name]) for name in ("timeline", "database", "history")))


def read_offset(text: str, source: str, instead: str = "") -> Offset:
    try:
        words = json.loads(text)
    except ValueError:
        raise BadOption(f"{source} is {text!r:.80}; give {instead}an offset as JSON") from None
    return offset_of(words if isinstance(words, dict) else {}, source)


@dataclass(frozen=True, slots=True)
class ChangeOffset:
    """A position in the WAL: transactions whose commits end at *lsn* or before were read. Spark writes it as JSON."""

    origin: Origin
    lsn: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self.origin) | {"lsn": self.lsn}


def change_offset_of(words: Mapping[str, Any]) -> ChangeOffset:
    try:
        return ChangeOffset(_origin_of(words), int(words["lsn"]))
    except (KeyError, TypeError, ValueError):
        raise BadOption(
            f"the checkpoint's offset is {words!r:.200}, which is no offset of changes; a checkpoint belongs to one "
            "query: use another one"
        ) from None


class OriginChanged(PipelineError):
    """An offset is of another history than the one in the database, or ahead of the history in the database.

    An offset is ahead after the database was put back to an earlier state. *offset_origin* is the history of the
    offset, *found_origin* the history in the database.
    """

    def __init__(
        self, message: str, *, offset_origin: Origin | None = None, found_origin: Origin | None = None
    ) -> None:
        super().__init__(message)
        self.offset_origin = offset_origin
        self.found_origin = found_origin


@dataclass(frozen=True, slots=True)
class Horizon:
    """The origin and a snapshot. Transactions below *xmin* have ended; transactions from *xmax* on have not ended."""

    origin: Origin
    snapshot: str
    xmin: int
    xmax: int


def check_origin(offset: Offset, found: Horizon, accepted: str | None) -> None:
    """Raise OriginChanged if *offset* is ahead of *found*, or if :func:`refuse_origin` refuses its origin."""
    refuse_origin(offset.origin, found.origin, accepted, f"{offset.position.xid}/{offset.position.id}")
    if offset.position.xid >= found.xmax:
        raise OriginChanged(
            f"the offset is at transaction {offset.position.xid}, and the database has only come to {found.xmax}: it "
            "was put back to an earlier state; begin anew (another checkpoint or archive)",
            offset_origin=offset.origin,
            found_origin=found.origin,
        )


def refuse_origin(offset: Origin, found: Origin, accepted: str | None, position: str) -> None:
    """Raise OriginChanged if the database's origin, *found*, is neither the offset's origin, *offset*, nor *accepted*.

    *position* is the offset's position, for the text of the error.
    """
    if offset != found and accepted != str(found):
        raise OriginChanged(
            f"{_difference(offset, found)}: rows may be missing or come twice after position {position}; begin anew "
            "(another checkpoint or archive), or, if nothing was lost, go on with "
            f".option('acceptedOrigin', '{found}')",
            offset_origin=offset,
            found_origin=found,
        )


def _difference(offset: Origin, found: Origin) -> str:
    for what, one, other, why in (
        ("cluster", offset.system, found.system, ""),
        ("timeline", offset.timeline, found.timeline, ": a standby was promoted, or the cluster was restored"),
        ("database with oid", offset.database, found.database, ""),
        ("table with oid", offset.history, found.history, ": it was made anew"),
    ):
        if one != other:
            return f"the offset is of {what} {one}, and the connection leads to {what} {other}{why}"
    raise AssertionError
