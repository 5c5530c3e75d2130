"""Roles of the model, and what each was granted."""

from dataclasses import dataclass

from tests.model.work import QUEUE


@dataclass(frozen=True, slots=True)
class Grant:
    """The work that a role was granted: kinds, in one queue, in these channels of it or (None) in all."""

    kinds: frozenset[str]
    queue: str = QUEUE
    channels: frozenset[str] | None = None


GRANTS = {
    "producer": Grant(frozenset({"producer"}), channels=frozenset({"a", "b"})),
    "consumer": Grant(frozenset({"consumer"})),
    "operator": Grant(frozenset({"operator"})),
    "stranger": Grant(frozenset({"producer", "consumer", "operator"}), queue="elsewhere"),
}
