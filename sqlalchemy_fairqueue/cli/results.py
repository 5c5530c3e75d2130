"""Result of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.errors import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType


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
