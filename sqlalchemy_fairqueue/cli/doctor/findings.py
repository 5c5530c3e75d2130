"""Findings of checks, and the context that every check is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.sql_files import query

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import timedelta

    from sqlalchemy import Connection, CursorResult


class Level(IntEnum):
    """The severity of a finding."""

    OK = 0
    WARNING = 1
    PROBLEM = 2

    @property
    def word(self) -> str:
        """The level as it is printed."""
        return self.name.lower()


class Role(StrEnum):
    """The work that the connected role is meant for."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    MONITOR = "monitor"
    OPERATOR = "operator"
    LOADER = "loader"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a check.

    Attributes:
        check: The subject, a word that never changes.
        level: Its severity.
        message: The finding in a line.
        remedy: What to do; None: nothing.
        values: The figures behind the message, for programs.
    """

    check: str
    level: Level
    message: str
    remedy: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The finding as a JSON document."""
        return {
            "check": self.check,
            "level": self.level.word,
            "message": self.message,
            "remedy": self.remedy,
            "values": dict(self.values),
        }


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The installation that is checked, and the options of the check.

    Attributes:
        connection: Each check has a read-only transaction of its own on it.
        schema: The schema that holds fairqueue.
        version: The installed version.
        queue: The only queue to check; None: all.
        max_age: How long messages may be ready before it is worth a warning.
        allowed: What may differ from the installed version, as ``index message_tenant``.
        role: The work that the connected role is meant for.
    """

    connection: Connection
    schema: str
    version: int
    queue: str | None
    max_age: timedelta
    allowed: Collection[str] = ()
    role: Role = Role.CONSUMER

    def execute(self, name: str, **parameters: object) -> CursorResult[Any]:
        """Execute a query of this folder, ``queries/<name>.sql``."""
        return self.connection.execute(query(f"doctor/queries/{name}.sql", self.schema), parameters)
