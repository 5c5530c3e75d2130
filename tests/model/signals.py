"""Signals that an enqueue to a bounded channel may leave out when it adds up the backlog."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.model.work import Addition


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that nobody has heard yet. ``passed``: a later one of its channel was heard."""

    id: int
    channel: str
    added: int
    bounded: bool
    queue_freed: int
    passed: bool


@dataclass(slots=True)
class Signals:
    """The signals of the last inspection, and what was committed since.

    Attributes:
        known: By their ids. A signal of a channel that somebody has locked may be put back under a new id.
        unbounded: Channels without a bound to which messages were added since the last inspection.
    """

    known: dict[int, Signal] = field(default_factory=dict)
    unbounded: set[str] = field(default_factory=set)

    def committed(self, added: Iterable[Addition]) -> None:
        """Messages were added by a transaction that has committed."""
        self.unbounded |= {one.wanted.channel for one in added if not one.bounded and one.outcome == "created"}

    def check(self, unheard: Sequence[Signal]) -> None:
        """Fail if one counts for nothing without a reason.

        It was sent when its channel had no bound; or a later one was heard first, for it committed late, or it frees
        slots of the queue, whose count somebody had locked.
        """
        uncounted = self.unbounded | {one.channel for one in self.known.values() if not one.bounded}
        for one in unheard:
            if not one.added:
                continue
            if one.id not in self.known:
                counts = one.bounded or one.channel in uncounted
                assert counts, f"I21: signal {one.id} of channel {one.channel} does not count"
            elif one.passed and not self.known[one.id].passed:
                assert one.queue_freed, f"I21: signal {one.id} of channel {one.channel} was passed over"
        self.known = {one.id: one for one in unheard}
        self.unbounded = set()
