"""What a transaction can ask for, and what it has done, as values of the reference model."""

from dataclasses import dataclass, field

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Receipt
from sqlalchemy_fairqueue.unit_of_work import Verb
from tests.model.books import Books, End, Outcome

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
    def message_id(self) -> int:
        """The message."""
        return self.delivery.message_id

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


@dataclass(frozen=True, slots=True)
class Paused:
    """A channel, or with channel None the queue, to be paused or resumed."""

    channel: str | None
    paused: bool


@dataclass(frozen=True, slots=True)
class Recorded:
    """Whether attempts that begin from now on are to be kept in the history."""

    history: bool


@dataclass(frozen=True, slots=True)
class Limited:
    """A limit of the queue to be set. ``marked``: messages that are out and get a slot."""

    most: int | None
    marked: frozenset[int] = frozenset()


Work = Wanted | Settled | Cancelled | Configured | Paused | Recorded | Limited


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
    """What an open transaction has done, to be seen when it commits, and the rows that it has locked by it.

    ``attempts``: how attempts ended. ``redriven``: dead letters, and between which instants. ``queue`` and
    ``queue_state``: the queue's own rows; ``gate``: what no dequeue passes.
    """

    made: set[str] = field(default_factory=set)
    added: list[Addition] = field(default_factory=list)
    ended: dict[int, End] = field(default_factory=dict)
    returned: dict[int, Settled] = field(default_factory=dict)
    configured: list[Configured] = field(default_factory=list)
    paused: list[Paused] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    limited: list[Limited] = field(default_factory=list)
    attempts: dict[int, Outcome] = field(default_factory=dict)
    withdrawn: set[int] = field(default_factory=set)
    redriven: dict[int, tuple[int, int]] = field(default_factory=dict)
    purged_letters: set[int] = field(default_factory=set)
    messages: set[int] = field(default_factory=set)
    letters: set[int] = field(default_factory=set)
    states: set[str] = field(default_factory=set)
    leases: set[int] = field(default_factory=set)
    queue: bool = False
    queue_state: bool = False
    gate: bool = False

    def touches_key(self, books: Books, channel: str, key: str) -> bool:
        """Whether who needs the key waits: it was added, or the message that holds it is locked."""
        place, holder = (channel, key), books.holder_of(channel, key)
        return (
            (holder is not None and holder.id in self.messages)
            or any((one.wanted.channel, one.wanted.key) == place for one in self.added)
            or any((books.dead[one].channel, books.dead[one].key) == place for one in self.redriven)
        )

    def merge(self, later: "Effects") -> None:
        """Add what was done after."""
        self.made |= later.made
        self.added += later.added
        self.returned = {one: how for one, how in {**self.returned, **later.returned}.items() if one not in later.ended}
        self.ended |= later.ended
        self.configured += later.configured
        self.paused += later.paused
        self.recorded += later.recorded
        self.limited += later.limited
        self.attempts |= later.attempts
        self.withdrawn |= later.withdrawn
        self.redriven |= later.redriven
        self.purged_letters |= later.purged_letters
        self.messages |= later.messages
        self.letters |= later.letters
        self.states |= later.states
        self.leases |= later.leases
        self.queue |= later.queue
        self.queue_state |= later.queue_state
        self.gate |= later.gate
