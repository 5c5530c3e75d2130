"""Targets of queue work: the queues that statements go to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Target:
    """A queue in a database.

    Attributes:
        schema: Where the queue is installed; None: found through the search_path.
        queue: Name of the queue.
        bind_arguments: How a session with several engines finds the one that holds the queue.
        notify: Whether transactions may wake waiting consumers.
    """

    schema: str | None
    queue: str
    bind_arguments: Mapping[str, Any] | None = field(default=None, compare=False)
    notify: bool = field(default=True, compare=False)
