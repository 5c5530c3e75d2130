"""Requests of a transaction and their effects, as values of the reference model."""

from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Receipt
from sqlalchemy_fairqueue.reports import CancelReceipt, PurgeReceipt
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from sqlalchemy_fairqueue.values.messages import CancelOutcome, EnqueueOutcome, OnDuplicate
from sqlalchemy_fairqueue.values.policies import POLICY
from tests.model.books import Books, End, Message, Outcome, QueueLimits

QUEUE = "model"


class When(NamedTuple):
    """When a message is due, and where it stands from then on."""

    delay: int = 0
    priority: int | None = None


NOW = When()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A message to be enqueued. ``when``: microseconds of delay, and a priority.

    ``group_id``: of the group that it becomes a member of. ``adder``: the member whose handler adds it; None: the
    transaction makes the group.
    """

    number: int
    channel: str
    key: str | None
    when: When
    max_attempts: int
    on_duplicate: OnDuplicate
    receipt: Receipt = field(repr=False, compare=False)
    group_id: str | None = None
    adder: Delivery | None = field(default=None, repr=False, compare=False)
    ordering_key: str | None = None

    @property
    def position(self) -> tuple[str, str]:
        """Where it stands in the lock order (names are ASCII)."""
        return self.channel, self.key or ""


@dataclass(frozen=True, slots=True)
class Grouped:
    """A group to be made. ``brought``: the policy of the channel of what follows it, if that is new by then."""

    id: str
    then: Wanted | None
    on_failure: Wanted | None
    brought: ChannelPolicy


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
    """A message to be withdrawn. ``told``: the receipt, once there is one."""

    message_id: int
    told: list[CancelReceipt] = field(default_factory=list, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Configured:
    """A policy to be set. ``marked``: messages that are out and get a slot. ``changes``: only these fields of it."""

    channel: str
    policy: ChannelPolicy
    marked: frozenset[int] = frozenset()
    changes: frozenset[str] | None = None

    def after(self, before: ChannelPolicy) -> ChannelPolicy:
        """The policy of the channel, which had another one before."""
        if self.changes is None:
            return self.policy
        return replace(before, **{name: getattr(self.policy, name) for name in self.changes})

    @property
    def sets_limit(self) -> bool:
        """Whether messages that are out are counted for it."""
        names = {"max_concurrency", "max_cost_out"} & (POLICY.keys() if self.changes is None else self.changes)
        return any(getattr(self.policy, name) is not None for name in names)


@dataclass(frozen=True, slots=True)
class Defaulted:
    """The policy that channels made from now on start with."""

    policy: ChannelPolicy


@dataclass(frozen=True, slots=True)
class Purged:
    """A channel to be emptied of what is in nobody's hands. ``told``: the receipt, once there is one."""

    channel: str
    told: list[PurgeReceipt] = field(default_factory=list, repr=False, compare=False)


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
    """Limits of the queue to be set: those that are named. ``marked``: messages that are out and get a slot."""

    limits: QueueLimits
    names: frozenset[str] = frozenset({"most"})
    marked: frozenset[int] = frozenset()

    def after(self, before: QueueLimits) -> QueueLimits:
        """The limits of the queue, which had others before."""
        return replace(before, **{name: getattr(self.limits, name) for name in self.names})


Work = Wanted | Grouped | Settled | Cancelled | Configured | Defaulted | Paused | Recorded | Limited | Purged
Holder = Message | Wanted | None


@dataclass(frozen=True, slots=True)
class Addition:
    """What became of a message that was to be enqueued.

    Attributes:
        wanted: The message.
        outcome: What became of it.
        holder: The message that holds its key and was left alone or rewritten.
        at: Where it stands in its channel.
        now: The instant of the call.
        bounded: Whether its channel has a bound.
    """

    wanted: Wanted
    outcome: EnqueueOutcome
    holder: Holder
    at: int
    now: int
    bounded: bool

    @property
    def promoted_at(self) -> int | None:
        """When it gets the position of its priority, if not at once."""
        return self.at if self.wanted.when.delay and self.wanted.when.priority is not None else None


@dataclass(slots=True)
class Effects:
    """What an open transaction has done, to be seen when it commits, and the rows that it has locked by it.

    ``made``: channels, and the policies they start with. ``grouped``: groups that are made. ``unkeyed``: messages
    that are out and gave their key up. ``attempts``: how attempts ended. ``redriven``: dead letters, and between
    which instants. ``purged``: messages, by id, and ``purged_new``: by the number of what the transaction itself
    added. ``cancels``, ``purges``: what receipts must say. ``queue`` and ``queue_state``: the queue's own rows;
    ``gate``: what no dequeue passes.
    """

    made: dict[str, ChannelPolicy] = field(default_factory=dict)
    grouped: list[Grouped] = field(default_factory=list)
    added: list[Addition] = field(default_factory=list)
    unkeyed: set[int] = field(default_factory=set)
    ended: dict[int, End] = field(default_factory=dict)
    returned: dict[int, Settled] = field(default_factory=dict)
    configured: list[Configured] = field(default_factory=list)
    defaults: list[ChannelPolicy] = field(default_factory=list)
    paused: list[Paused] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    limited: list[Limited] = field(default_factory=list)
    attempts: dict[int, Outcome] = field(default_factory=dict)
    withdrawn: set[int] = field(default_factory=set)
    redriven: dict[int, tuple[int, int]] = field(default_factory=dict)
    purged: set[int] = field(default_factory=set)
    purged_new: set[int] = field(default_factory=set)
    purged_letters: set[int] = field(default_factory=set)
    cancels: list[tuple[Cancelled, CancelOutcome]] = field(default_factory=list)
    purges: list[tuple[Purged, int]] = field(default_factory=list)
    messages: set[int] = field(default_factory=set)
    letters: set[int] = field(default_factory=set)
    states: set[str] = field(default_factory=set)
    leases: set[int] = field(default_factory=set)
    queue: bool = False
    queue_state: bool = False
    gate: bool = False

    def gone(self) -> set[int]:
        """The messages that are there no more."""
        return self.ended.keys() | self.purged

    def without_key(self) -> set[int]:
        """The messages that hold their key no more."""
        return self.gone() | self.withdrawn | self.unkeyed

    def touches_key(self, books: Books, channel: str, key: str) -> bool:
        """Whether who needs the key waits: it was added, or the message that holds it is locked."""
        name, holder = (channel, key), books.holder_of(channel, key)
        return (
            (holder is not None and holder.id in self.messages)
            or any((one.wanted.channel, one.wanted.key) == name for one in self.added if one.outcome == "created")
            or any((books.dead[one].channel, books.dead[one].key) == name for one in self.redriven)
        )

    def merge(self, later: "Effects") -> None:
        """Add what was done after."""
        for one in fields(self):
            before, after = getattr(self, one.name), getattr(later, one.name)
            setattr(self, one.name, [*before, *after] if isinstance(before, list) else before | after)
        self.returned = {one: how for one, how in self.returned.items() if one not in later.gone()}
