"""What a transaction can ask for, and what it has done, as values of the reference model."""

from dataclasses import dataclass, field

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Receipt
from sqlalchemy_fairqueue.unit_of_work import Verb
from tests.model.books import End

QUEUE = "model"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A message to be enqueued. ``when``: microseconds of delay, or below zero a priority."""

    number: int
    channel: str
    key: str | None
    when: int
    max_attempts: int
    receipt: Receipt = field(repr=False, compare=False)

    @property
    def position(self) -> tuple[str, str]:
        """Where it stands in the lock order (names are ASCII)."""
        return self.channel, self.key or ""


@dataclass(frozen=True, slots=True)
class Settled:
    """A delivery to be ended."""

    delivery: Delivery
    verb: Verb
    delay: int

    @property
    def token(self) -> tuple[int, int, int]:
        """The fencing token."""
        return self.delivery.message_id, self.delivery.lease.id, self.delivery.deliveries


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A message to be withdrawn."""

    message_id: int


@dataclass(frozen=True, slots=True)
class Configured:
    """A policy to be set. ``marked``: messages that are out and get a slot."""

    channel: str
    policy: ChannelPolicy
    marked: frozenset[int] = frozenset()


Work = Wanted | Settled | Cancelled | Configured


@dataclass(frozen=True, slots=True)
class Addition:
    """A message of one enqueue call, the ordinal-th of so many; ``existing`` is what holds its key already."""

    wanted: Wanted
    ordinal: int
    count: int
    keyed: bool
    existing: "int | Wanted | None"


@dataclass(slots=True)
class Effects:
    """What an open transaction has done, to be seen when it commits, and the rows that it has locked by it."""

    made: set[str] = field(default_factory=set)
    added: list[Addition] = field(default_factory=list)
    ended: dict[int, End] = field(default_factory=dict)
    returned: dict[int, Settled] = field(default_factory=dict)
    configured: list[Configured] = field(default_factory=list)
    messages: set[int] = field(default_factory=set)
    states: set[str] = field(default_factory=set)
    leases: set[int] = field(default_factory=set)

    def merge(self, later: "Effects") -> None:
        """Add what was done after."""
        self.made |= later.made
        self.added += later.added
        self.returned = {one: how for one, how in {**self.returned, **later.returned}.items() if one not in later.ended}
        self.ended |= later.ended
        self.configured += later.configured
        self.messages |= later.messages
        self.states |= later.states
        self.leases |= later.leases
