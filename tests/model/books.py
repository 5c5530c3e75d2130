"""The reference model: what has been committed, as plain Python. It knows no SQL and no connection."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from sqlalchemy_fairqueue.times import microseconds
from tests.model.rates import RateCell
from tests.model.turns import cost_of

if TYPE_CHECKING:
    from tests.model.work import Wanted

End = Literal["completed", "dead", "cancelled", "purged"]
Outcome = Literal["completed", "retried", "released", "buried", "expired", "cancelled"]

POLL_AGAIN = 12_000
"""Microseconds in which a channel whose messages were all locked need not be polled: 10 ms and some clock ticks."""
HELD_BACK = 2**63 - 1
"""Where a message stands that was found to wait for others of its ordering key."""


@dataclass(slots=True)
class Message:
    """A message that is present: ready, scheduled or in a consumer's hands. ``of_group``: headers.

    ``moved_at``: since when it is known to be held back, or to be held back no more.
    """

    id: int
    channel: str
    number: int
    key: str | None
    dequeue_at: int
    enqueued_at: int
    max_attempts: int
    priority: int | None = None
    attempts: int = 0
    deliveries: int = 0
    lease_id: int | None = None
    slots: int = 0
    cancelled: bool = False
    recorded: bool = False
    promoted_at: int | None = field(default=None, compare=False)
    group_id: str | None = None
    of_group: dict[str, object] = field(default_factory=dict, compare=False)
    ordering_key: str | None = None
    moved_at: int = field(default=-1, compare=False)

    @property
    def is_held_back(self) -> bool:
        """Whether it was found to wait for others of its ordering key."""
        return self.dequeue_at == HELD_BACK

    @property
    def order(self) -> tuple[int, int]:
        """Where it stands in its channel."""
        return self.dequeue_at, self.id

    @property
    def cost(self) -> int:
        """What it costs."""
        return cost_of(self.number)

    @property
    def headers(self) -> dict[str, object] | None:
        """Its headers: each second message has one of its own."""
        own: dict[str, object] = {"number": self.number} if self.number % 2 else {}
        return own | self.of_group or None

    def give_back(self, *, counted: bool) -> None:
        """Out of its consumer's hands, in its channel again."""
        self.lease_id = None
        self.slots = 0
        self.recorded = False
        self.attempts -= not counted


@dataclass(slots=True)
class Channel:
    """What is known of a channel: its policy, its rate cell, and whom it has kept waiting."""

    policy: ChannelPolicy = field(default_factory=ChannelPolicy)
    paused: bool = False
    dropped: int = 0
    put_off_until: int = 0
    cell: RateCell = field(default_factory=RateCell)

    def __post_init__(self) -> None:
        self.cell.rate = self.policy.rate

    @property
    def unlimited(self) -> bool:
        """Whether nothing but its weight holds it back."""
        return not self.counts and self.policy.rate is None

    @property
    def counts(self) -> bool:
        """Whether messages that are out are counted."""
        return (self.policy.max_concurrency, self.policy.max_cost_out) != (None, None)

    @property
    def metered(self) -> bool:
        """Whether it has a limit in cost."""
        policy = self.policy
        return policy.max_cost_out is not None or (policy.rate is not None and policy.rate.of == "cost")

    def position(self, ready_at: int, priority: int | None) -> int:
        """Where a message stands that is ready since then."""
        if priority is None:
            return ready_at
        aging = self.policy.priority_aging
        return -priority if aging is None else ready_at - priority * microseconds(aging)

    def configure(self, policy: ChannelPolicy, rate_at: int) -> None:
        """Another policy; the rate is measured anew."""
        self.policy = policy
        self.cell.configure(policy.rate, rate_at)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limits of the queue as a whole. ``shared``: whether it draws from the shared limit."""

    most: int | None = None
    most_cost: int | None = None
    rate: Rate | None = None
    shared: bool = False

    @property
    def limited(self) -> bool:
        """Whether messages that are out are counted."""
        return self != QueueLimits()


@dataclass(slots=True)
class Group:
    """A group. ``pending``: its members that have not ended. ``is_finished``: it was followed, if by anything."""

    total: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    pending: set[int] = field(default_factory=set)
    is_finished: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """What its follow-up is told."""
        return {"total": self.total, "done": self.done, "failed": self.failed, "cancelled": self.cancelled}

    def join(self, message_id: int) -> None:
        """A member was added."""
        assert not self.is_finished, f"message {message_id} came to a group that is finished"
        self.total += 1
        self.pending.add(message_id)

    def end(self, message: Message, how: End) -> None:
        """A member has ended: one that was withdrawn is cancelled, also if its consumer completed it."""
        self.pending.remove(message.id)
        if how == "dead":
            self.failed += 1
        elif how == "completed" and not message.cancelled:
            self.done += 1
        else:
            self.cancelled += 1


@dataclass(slots=True)
class Lease:
    """A consumer's lease."""

    consumer: int
    expires_at: int


@dataclass(slots=True)
class Books:
    """Everything committed, and what became of what is gone.

    ``spoilt``: messages in nobody's hands that no dequeue can deliver, and what
    becomes of each: it is dead, or its channel is paused.
    ``results``: of messages that were completed, or that a cancel found.
    """

    messages: dict[int, Message] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    ended: dict[int, End] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    dead: dict[int, Message] = field(default_factory=dict)
    spoilt: dict[int, str] = field(default_factory=dict)
    tokens: set[tuple[int, int, int]] = field(default_factory=set)
    history: list[tuple[int, int, Outcome]] = field(default_factory=list)
    enqueued: int = 0
    paused: bool = False
    limits: QueueLimits = QueueLimits()
    rate: RateCell = field(default_factory=RateCell)
    records: bool = False
    keeps_results: bool = False
    results: dict[int, Literal["completed", "cancelled"]] = field(default_factory=dict)
    defaults: ChannelPolicy | None = None

    def add(self, message: Message) -> None:
        """A message was committed."""
        assert message.id not in self.messages, f"message {message.id} was added twice"
        assert message.id not in self.ended, f"the id of message {message.id} was used before"
        self.messages[message.id] = message
        if message.group_id is not None:
            self.groups[message.group_id].join(message.id)
        self.enqueued += 1

    def end(self, message_id: int, how: End) -> None:
        """A message is gone for good."""
        assert message_id not in self.ended, f"message {message_id} ended twice"
        message = self.messages.pop(message_id)
        self.ended[message_id] = how
        if self.keeps_results and how in {"completed", "cancelled"}:
            self.results[message_id] = "cancelled" if message.cancelled or how == "cancelled" else "completed"
        self.spoilt.pop(message_id, None)
        if message.group_id is not None:
            self.groups[message.group_id].end(message, how)
            # It is outside of the group if it lives again.
            message.group_id = None
        if how == "dead":
            self.dead[message_id] = message

    def withdraw(self, message_id: int) -> None:
        """A cancel found a message that a consumer holds."""
        self.messages[message_id].cancelled = True
        if self.keeps_results:
            self.results[message_id] = "cancelled"

    def redrive(self, message_id: int, dequeue_at: int) -> None:
        """A dead letter lives again: its attempts count anew, its hand-outs go on."""
        message = self.dead.pop(message_id)
        assert self.ended.pop(message_id) == "dead"
        message.give_back(counted=True)
        message.attempts, message.dequeue_at, message.promoted_at = 0, dequeue_at, None
        self.messages[message_id] = message

    def replace(self, message_id: int, wanted: "Wanted", dequeue_at: int, promoted_at: int | None) -> None:
        """A message in nobody's hands was rewritten: it keeps its id, its key, when it came, its hand-outs."""
        message = self.messages[message_id]
        assert message.lease_id is None, f"message {message_id} was rewritten in a consumer's hands"
        message.number, message.max_attempts, message.attempts = wanted.number, wanted.max_attempts, 0
        message.dequeue_at, message.promoted_at = dequeue_at, promoted_at
        message.priority, message.ordering_key = wanted.when.priority, wanted.ordering_key
        # A member stays one, with the header of its group.
        self.spoilt.pop(message_id, None)

    def purge_letter(self, message_id: int) -> None:
        """A dead letter is gone for good."""
        del self.dead[message_id]
        self.ended[message_id] = "purged"

    def deliver(self, message_id: int, lease_id: int, deliveries: int) -> Message:
        """A message came into a consumer's hands (I2, I3)."""
        message = self.messages[message_id]
        assert message.lease_id is None, f"message {message_id} is held under lease {message.lease_id} already"
        assert not message.cancelled, f"message {message_id} was withdrawn"
        assert deliveries == message.deliveries + 1, f"hand-out {deliveries} after {message.deliveries}"
        token = message_id, lease_id, deliveries
        assert token not in self.tokens, f"token {token} came twice"
        self.tokens.add(token)
        message.lease_id = lease_id
        message.deliveries = deliveries
        message.attempts += 1
        message.slots = int(self.channels[message.channel].counts)
        message.slots += 2 * self.limits.limited
        message.recorded = self.records
        return message

    def record(self, message_id: int, outcome: Outcome) -> None:
        """An attempt has ended: it is in the history if it began while the queue recorded."""
        message = self.messages[message_id]
        if message.recorded:
            self.history.append((message_id, message.attempts, outcome))

    def reclaim(self, now: int, locked: set[int], locked_leases: set[int]) -> None:
        """Expired leases are taken back, but for what somebody has locked."""
        for message in list(self.messages.values()):
            lease_id = message.lease_id
            if lease_id is None or message.id in locked or lease_id in locked_leases:
                continue
            if self.leases[lease_id].expires_at > now:
                continue
            if message.cancelled:
                self.record(message.id, "cancelled")
                self.end(message.id, "cancelled")
            elif message.attempts >= message.max_attempts:
                self.record(message.id, "buried")
                self.end(message.id, "dead")
            else:
                self.record(message.id, "expired")
                message.give_back(counted=True)

    def promote(self, now: int, locked: set[int]) -> int:
        """Messages with a priority that have come due stand where it puts them, but for what somebody has locked."""
        due = [one for one in self.messages.values() if one.promoted_at is not None and one.promoted_at <= now]
        free = [one for one in due if one.id not in locked]
        for one in free:
            assert one.promoted_at is not None
            one.dequeue_at = self.channels[one.channel].position(one.promoted_at, one.priority)
            one.promoted_at = None
        return len(free)

    def goes_first(self, message: Message) -> bool:
        """Whether no other message of its ordering key comes before it: none is out, was out before, or came before."""
        if message.ordering_key is None:
            return True
        key = message.channel, message.ordering_key
        alike = (one for one in self.messages.values() if (one.channel, one.ordering_key) == key)
        return message is min(alike, key=lambda one: (one.lease_id is None, one.deliveries == 0, one.id))

    def hold_back(self, message: Message, now: int) -> None:
        """A dequeue found that it waits for others of its ordering key."""
        assert message.lease_id is None, f"message {message.id} is held back in a consumer's hands"
        assert not self.goes_first(message), f"message {message.id} comes first and is held back"
        message.dequeue_at, message.promoted_at, message.moved_at = HELD_BACK, None, now

    def let_go(self, message: Message, dequeue_at: int, since: tuple[int, int]) -> None:
        """A dequeue found that no other message of its ordering key comes before it: it is as one added just now."""
        assert self.goes_first(message), f"message {message.id} is let go before others of its ordering key"
        earliest, latest = (self.channels[message.channel].position(at, message.priority) for at in since)
        assert earliest <= dequeue_at <= latest, f"message {message.id} is let go at {dequeue_at}, not in {since}"
        message.dequeue_at, message.moved_at = dequeue_at, since[1]

    def of_channel(self, name: str) -> list[Message]:
        """A channel's messages that are in nobody's hands, in order."""
        free = (one for one in self.messages.values() if one.channel == name and one.lease_id is None)
        return sorted(free, key=lambda one: one.order)

    def out_of(self, name: str) -> tuple[int, int]:
        """How many messages hold slots of a channel, and what they cost."""
        costs = [one.cost for one in self.messages.values() if one.channel == name and one.slots & 1]
        return len(costs), sum(costs)

    def out(self) -> tuple[int, int]:
        """How many messages hold slots of the queue, and what they cost."""
        costs = [one.cost for one in self.messages.values() if one.slots >> 1]
        return len(costs), sum(costs)

    def holds_back(self, cost: int) -> bool:
        """Whether the queue's quota holds a message back that costs so much."""
        most, (_, out) = self.limits.most_cost, self.out()
        return most is not None and out > 0 and out + cost > most

    def room(self, limit: int, now: int, *, surely: bool = False) -> int:
        """How many of so many messages the queue's own limits and its pause let out, at most or *surely*."""
        if self.paused:
            return 0
        rate = self.rate.surely(now) if surely else self.rate.allows(now)
        free = None if self.limits.most is None else max(0, self.limits.most - self.out()[0])
        if self.holds_back(1):
            return 0
        return min(one for one in (limit, rate, free) if one is not None)

    def holder_of(self, channel: str, key: str) -> Message | None:
        """The message that holds a key."""
        return next((one for one in self.messages.values() if (one.channel, one.key) == (channel, key)), None)

    def check_balance(self) -> None:
        """I10: what was enqueued is present or has ended, in one way."""
        assert self.enqueued == len(self.messages) + len(self.ended)
