"""Result and exit status of a command. The numbers are documented and never change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType


class ExitStatus(IntEnum):
    """Exit statuses."""

    OK = 0
    FOUND = 1
    """doctor found a problem, a tenant misses the objective of a report, a named object does not exist, or the question
    was answered with no.
    """
    USAGE = 2
    """The command line cannot be used: an unknown option, a bad value, an application that cannot be loaded."""
    AWAY = 3
    """The database cannot be reached, or the connection was lost."""
    SCHEMA = 4
    """fairqueue is not installed in the schema, or in a version that this library cannot use."""
    REFUSED = 5
    """The database refused: a missing privilege, a timeout, a deadlock."""
    FAILED = 70
    """A bug in fairqueue or in the application; --debug shows where."""
    OUTPUT = 74
    """stdout cannot be written: it is closed, or a file on a full disk."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader of the output has gone."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command.

    Attributes:
        document: The JSON document. Its keys are a promise; new ones may come.
        parts: Texts and tables for people, one below the other.
        status: The exit status.
    """

    document: Mapping[str, Any]
    parts: tuple[RenderableType, ...] = ()
    status: ExitStatus = ExitStatus.OK
