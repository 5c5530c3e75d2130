"""Roles of the model, and what each was granted."""

from collections.abc import Collection
from dataclasses import dataclass

from tests.model.work import QUEUE


@dataclass(frozen=True, slots=True)
class Grant:
    """The work that a role was granted: kinds, in one queue, in these channels of it or (None) in all."""

    kinds: frozenset[str]
    queue: str = QUEUE
    channels: frozenset[str] | None = None

    def covers(self, queue: str, channels: Collection[str]) -> bool:
        """Whether a call for the channels of the queue is within it."""
        return self.queue == queue and (self.channels is None or self.channels >= set(channels))


GRANTS = {
    "producer": [Grant(frozenset({"producer"}), channels=frozenset({"a", "b"}))],
    # What it may do elsewhere bounds nothing that it may do here.
    "consumer": [Grant(frozenset({"consumer"})), Grant(frozenset({"operator"}), queue="elsewhere")],
    "operator": [Grant(frozenset({"operator"}))],
    "stranger": [Grant(frozenset({"producer", "consumer", "operator"}), queue="elsewhere")],
}
