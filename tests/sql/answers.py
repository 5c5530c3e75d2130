"""Results of the SQL functions, as dataclasses."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Added:
    """One row of fq_enqueue."""

    ordinal: int
    message_id: int
    created: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class Hand:
    """A message in a consumer's hands, with its token."""

    id: int
    row: str | None
    channel: str
    kind: str
    content: bytes
    attempt: int
    deliveries: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class Call:
    """What one fq_dequeue returned."""

    hands: list[Hand]
    lease_id: int | None
    lease_expires_at: int | None
    due_in: int | None
    is_held: bool
    holds_slots: bool
    is_timed: bool
    keeps_results: bool
    taken_at: int = 0
    """When they were taken, by the server's clock, while others could not take from their channels yet."""

    @property
    def ids(self) -> list[int]:
        """The ids of the messages, in the order in which they came."""
        return [hand.id for hand in self.hands]

    @property
    def channels(self) -> list[str]:
        """The channels of the messages, in the order in which they came."""
        return [hand.channel for hand in self.hands]
