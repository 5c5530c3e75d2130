"""What a check found, and what checks are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import timedelta

    from sqlalchemy import Connection


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    WARNING = 1
    PROBLEM = 2

    @property
    def word(self) -> str:
        """As it is printed."""
        return self.name.lower()


class Role(StrEnum):
    """What the connected role is for."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    MONITOR = "monitor"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: The subject, a word that stays the same.
        level: How bad it is.
        message: What was found, in a line.
        remedy: What to do, None where nothing is to be done.
        values: The figures behind the message, for programs.
    """

    check: str
    level: Level
    message: str
    remedy: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "check": self.check,
            "level": self.level.word,
            "message": self.message,
            "remedy": self.remedy,
            "values": dict(self.values),
        }


@dataclass(frozen=True, slots=True)
class Examination:
    """What the checks of an installation are given.

    Attributes:
        connection: Each check has a read-only transaction of its own on it.
        schema: The schema that holds fairqueue.
        version: The installed version.
        queue: The only queue to look at; None: all.
        max_age: How long messages may be ready before it is worth a warning.
        allowed: What may differ from the installed version, as ``index message_tenant``.
        role: What the connected role is for.
    """

    connection: Connection
    schema: str
    version: int
    queue: str | None
    max_age: timedelta
    allowed: Collection[str] = ()
    role: Role = Role.CONSUMER
