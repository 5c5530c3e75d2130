"""What a command has to say, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.statuses import Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command.

    Attributes:
        document: For programs: its keys are a promise, new ones may come.
        parts: For people: texts and tables, one below the other.
        status: The exit status.
    """

    document: Mapping[str, Any]
    parts: tuple[RenderableType, ...] = ()
    status: Status = Status.OK
