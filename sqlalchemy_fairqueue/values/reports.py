"""What readings of a queue return: statistics, channels and why they wait, consumers, messages, dead letters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.values.policies import POLICY, ChannelPolicy, PolicyFields

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.fields import Rate


_Item = TypeVar("_Item")
_OWN_NAME = re.compile(r"(.+):(\d+):[0-9a-f]{8}", re.ASCII | re.DOTALL)


class Reason(StrEnum):
    """Why a message or a channel waits. If several reasons apply, calls return the one that must be removed first.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.pause(engine, "customer-7")
        >>> queue.message(engine, receipt.message_id).wait.reason is Reason.PAUSED
        True
    """

    QUEUE_PAUSED = "queue paused"
    PAUSED = "paused"
    NO_CONSUMER = "no consumer"
    OWN_LIMIT = "own limit"
    RATE = "rate"
    QUEUE_LIMIT = "queue limit"
    QUEUE_RATE = "queue rate"
    SHARED_LIMIT = "shared limit"
    SHARED_RATE = "shared rate"
    NEXT = "next dequeue"
    """No message of the queue is leased. The message waits for a dequeue by a worker that has a handler for it."""
    CAPACITY = "capacity"
    """The channel gets its whole share, or no other channel has leased messages. Only more consumers would help."""
    TURN = "others' turn"
    ORDERING_KEY = "ordering key"
    SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True)
class Taker:
    """A channel that has leased messages while another one waits, with its share of the queue's leased messages.

    Attributes:
        share: The channel's share of the queue's leased messages, 0 to 1.
        entitled: The share to which the channel's weight entitles it, 0 to 1.

    Example:
        >>> queue.configure(engine, max_concurrency=1)
        >>> _, waiting = [queue.enqueue(engine, channel=name, payload=1) for name in ("customer-7", "customer-8")]
        >>> [delivery] = queue.dequeue(engine)
        >>> [taker] = queue.message(engine, waiting.message_id).wait.takers
        >>> taker.channel, taker.leased, taker.share, taker.entitled
        ('customer-7', 1, 1.0, 0.5)
    """

    channel: str
    leased: int
    share: float
    entitled: float
    weight: int = 1


@dataclass(frozen=True, slots=True)
class QueueTaker:
    """A queue that draws from a shared limit, and how many messages its consumers hold.

    Example:
        >>> queue.limits.configure(engine, "mail", max_concurrency=2)
        >>> news = Queue("news")
        >>> for each in (queue, news):
        ...     each.configure(engine, limits=["mail"])
        ...     _, waiting = [each.enqueue(engine, channel="customer-7", payload=number) for number in (1, 2)]
        ...     deliveries = each.dequeue(engine, limit=1)
        >>> [taker] = news.message(engine, waiting.message_id).wait.queues
        >>> taker.queue == queue.name, taker.leased
        (True, 1)
    """

    queue: str
    leased: int


@dataclass(frozen=True, slots=True)
class LongestOut:
    """Of the leased messages that a limit counts, the message that consumers have held longest.

    Attributes:
        message_id: Without a history, the least id, since nobody knows which message has been held longest.
        since: When it was delivered, in UTC. None: unknown, since the queue records no history. For a channel with a
            max_concurrency of 1 the time is known even then.

    Example:
        >>> queue.configure(engine, max_concurrency=1, history=True)
        >>> receipts = [queue.enqueue(engine, channel="customer-7", payload=1, kind="parse") for _ in range(2)]
        >>> [delivery] = queue.dequeue(engine)
        >>> longest = queue.message(engine, receipts[1].message_id).wait.longest_out
        >>> longest.message_id == delivery.message_id, longest.kind, longest.since is None
        (True, 'parse', False)
    """

    message_id: int
    channel: str
    kind: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a message or a channel waits, and who holds what it waits for.

    Attributes:
        until: When a rate allows the message, or when a scheduled message is due. None: unknown.
        takers: If the reason is TURN, QUEUE_LIMIT, QUEUE_RATE, SHARED_LIMIT or SHARED_RATE: up to three other channels
            of the queue that have leased messages, those with the most first.
        limit: The name of the shared limit that holds the message back, or None.
        queues: Other queues that draw from *limit*, those with the most leased messages first.
        behind: The message of its ordering key that goes before it, or the dead letter that holds this key; or None.
        used: How many messages count against *most*; None if *most* is None.
        most: The used-up max_concurrency of the channel, the queue or *limit*, if it holds the message back; or None.
        longest_out: If a limit of the channel or of the queue holds the message back, the message that the limit has
            counted longest. None: neither limit does, or all messages that the limit counted have just ended.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> str(queue.message(engine, message_id).wait.reason)
        'no consumer'
    """

    reason: Reason
    until: datetime | None = None
    takers: tuple[Taker, ...] = ()
    limit: str | None = None
    queues: tuple[QueueTaker, ...] = ()
    behind: int | None = None
    used: int | None = None
    most: int | None = None
    longest_out: LongestOut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverReason:
    """A reason why messages of a queue wait, how many messages wait for this reason, and in how many channels.

    Attributes:
        until: When the first of these channels can be served again, at the earliest. None: unknown.
        limit: The name of the shared limit that they wait for, or None.

    See Also:
        :meth:`~sqlalchemy_fairqueue.Worker.leftovers`
    """

    reason: Reason
    messages: int
    channels: int
    until: datetime | None = None
    limit: str | None = None

    def __str__(self) -> str:
        name = f"{self.reason} {clean(self.limit)}" if self.limit else str(self.reason)
        channels = "1 channel" if self.channels == 1 else f"{self.channels:,} channels"
        first = f"; the first may go at {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else ""
        return f"{name}: {self.messages:,} in {channels}{first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The messages that a drained worker leaves in a queue, and why they wait.

    ``str`` writes a line for the queue, then a line for each reason, the reason with the most messages first. *reasons*
    covers at most 1,000 channels; the counts cover all channels.

    See Also:
        :meth:`~sqlalchemy_fairqueue.Worker.leftovers`
    """

    queue: str
    ready: int
    scheduled: int
    held: int
    leased: int
    reasons: tuple[LeftoverReason, ...] = ()

    def __str__(self) -> str:
        names = ("ready", "scheduled", "held", "leased")
        counts = ((name, getattr(self, name)) for name in names)
        words = ", ".join(f"{count:,} {name}" for name, count in counts if count)
        return "\n".join([f"left in queue {clean(self.queue)}: {words}", *(f"  {one}" for one in self.reasons)])


_OWN_REASONS = frozenset(
    {Reason.QUEUE_PAUSED, Reason.PAUSED, Reason.OWN_LIMIT, Reason.RATE, Reason.ORDERING_KEY, Reason.SCHEDULED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCapacity:
    """The part of :class:`QueueStats` that tells whether something holds the whole queue back.

    In a QueueStats, *consumers* is the number of consumers. In a plain QueueCapacity, 1 stands for any number above 0.
    """

    queue: str
    paused_at: datetime | None
    max_concurrency: int | None
    current_concurrency: int | None
    max_cost_out: int | None
    current_cost: int | None
    next_cost: int | None
    rate_allows_at: datetime | None
    noted_at: datetime | None
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats(QueueCapacity):
    """The state of a queue at the time of the call. Times are in UTC.

    Attributes:
        channels: How many channels, including idle ones.
        ready: Due messages that are neither leased nor held: the sum of the next three.
        deliverable: Ready messages that workers could take now.
        paused: Ready messages in paused channels; all ready messages if the queue is paused.
        limited: Ready messages that a limit or a rate holds back: of the channel, of the queue, or a shared one.
        held: Due messages that wait for others of their ordering keys.
        dropped: Messages that were dropped because their channel was full. Forgotten channels do not count.
        current_concurrency: Messages that count against max_concurrency; ended ones count until their signals are
            heard. None until the queue first delivers a message or gets a limit.
        current_cost: What the messages of *current_concurrency* cost.
        next_cost: The cost of the message that is delivered next. None: the dispatcher knows of no ready message.
        rate_allows_at: When the rate allows the next message, or allowed it. None: no rate.
        noted_at: When the figures of limits and rates were last updated, or None.
        signals: Signals that are not heard yet. If thousands remain for long, nobody dequeues.
        consumers: Consumers with an unexpired lease.
        served_cost: The cost of attempts that ended since *served_since*. None: the queue records no history.
        served_since: Five minutes ago or, if later, the time of the oldest of the last 2,000 attempts of all queues.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> receipt = queue.enqueue(engine, channel="customer-8", payload=1, delay=timedelta(hours=1))
        >>> queue.pause(engine)
        >>> stats = queue.stats(engine)
        >>> stats.ready, stats.deliverable, stats.paused, stats.scheduled, stats.undelivered
        (1, 0, 1, 1, 2)
    """

    channels: int
    ready: int
    deliverable: int
    paused: int
    limited: int
    scheduled: int
    held: int
    leased: int
    dead: int
    last_died_at: datetime | None
    dropped: int
    oldest_ready_at: datetime | None
    rate: Rate | None
    signals: int
    served_cost: int | None = None
    served_since: datetime | None = None

    @property
    def undelivered(self) -> int:
        """The ready, scheduled and held messages."""
        return self.ready + self.scheduled + self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimit:
    """A limit that several queues share, at the time of the call. None means no limit.

    Attributes:
        rate_allows_at: When the rate allows the next message, or allowed it, in UTC.
        leased: How many messages of each of its queues are leased, in the order of *queues*.
        contending: Queues that the limit held back at a dequeue within the last second.

    See Also:
        :class:`~sqlalchemy_fairqueue.queue.Limits`
    """

    name: str
    max_concurrency: int | None
    max_cost_out: int | None
    rate: Rate | None
    rate_allows_at: datetime | None
    current_concurrency: int
    current_cost: int
    queues: tuple[str, ...]
    leased: tuple[int, ...]
    contending: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInfo:
    """A plan at the time of the call: a policy with a name, which channels follow.

    Attributes:
        policy: The policy of its channels, except for their overridden fields.
        is_default: Whether it is the queue's ``default_plan``, which new channels follow.
        spread: Whether dequeues have copied its last change to all of its channels.

    See Also:
        :class:`~sqlalchemy_fairqueue.queue.Plans`
    """

    name: str
    policy: ChannelPolicy
    channels: int
    is_default: bool
    spread: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDemand:
    """A channel that waits for consumers or occupies them, at the time of the call. Times are in UTC.

    Fields that are not listed here are as in :class:`QueueStats`, but for one channel.

    Attributes:
        paused_at: When the channel was paused, or None.
        behind: If the channel is held, the message or dead letter that its first held message waits for; else None.
        last_dequeue_at: When a dequeue last took a message of the channel, or None.
        max_concurrency: As in its policy; likewise max_cost_out, rate and weight.
        next_cost: The cost of its first message, if it has a max_cost_out.
        opens_at: Until when dequeues skip it, because its rate is used up or its first message is not due; or None.
        served_cost: As in :class:`Contention`, for its attempts. None: the queue shares by messages, or has no history.
        wait: Why it waits, or None. ``queue.channels`` and ``queue.admin.contention`` do not look for reasons, so in
            their results *wait* is None even if the channel waits.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [demand] = queue.admin.contention(engine).channels
        >>> demand.channel, demand.undelivered, demand.weight, demand.reason, demand.competes
        ('customer-7', 1, 1, None, False)
    """

    channel: str
    ready: int
    scheduled: int
    held: int
    leased: int
    current_concurrency: int
    max_concurrency: int | None
    current_cost: int
    max_cost_out: int | None
    next_cost: int | None
    rate: Rate | None
    weight: int
    paused_at: datetime | None
    oldest_ready_at: datetime | None
    last_dequeue_at: datetime | None
    rate_allows_at: datetime | None
    opens_at: datetime | None
    behind: int | None = None
    served_cost: int | None = None
    wait: Wait | None = None

    @property
    def undelivered(self) -> int:
        """The ready, scheduled and held messages."""
        return self.ready + self.scheduled + self.held

    @property
    def reason(self) -> Reason | None:
        """The reason for which the channel waits, taken from ``wait``; None if ``wait`` is None."""
        return self.wait.reason if self.wait else None

    @property
    def competes(self) -> bool:
        """Whether the channel has leased messages, or waits for consumers or for limits that it shares with others.

        If ``wait`` is None, this tells only whether the channel has leased messages.
        """
        return self.leased > 0 or (self.wait is not None and self.wait.reason not in _OWN_REASONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStats(PolicyFields, ChannelDemand):
    """The state of a channel at the time of the call.

    The policy's fields are explained in :class:`~sqlalchemy_fairqueue.ChannelPolicy`, other fields that are not listed
    here in :class:`ChannelDemand` or :class:`QueueStats`. ``queue.channels`` does not look for reasons, so *wait* and
    *reason* are None, and *competes* tells only whether the channel has leased messages.

    Attributes:
        deliverable: Ready messages that workers could take now, if they took from no other channel.
        paused: Ready messages that a pause of the channel or the queue holds back.
        backlog: All undelivered messages: the ready, scheduled and held ones.
        plan: The name of the plan that the channel follows, or None.
        overridden: The fields of its policy that were configured for this channel alone.
        served_cost: The cost of its attempts that ended since *served_since*, even if the queue shares by messages.
            None: the queue records no history.
        problem: Why a dequeue paused the channel: a message can neither be delivered nor become a dead letter, or the
            state of the channel cannot be updated.

    Example:
        >>> queue.configure_channel(engine, "customer-7", max_concurrency=2)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [channel] = queue.channels(engine)
        >>> channel.undelivered, channel.max_concurrency, channel.policy.weight, channel.reason, channel.competes
        (1, 2, 1, None, False)
    """

    queue: str
    deliverable: int
    paused: int
    limited: int
    dead: int
    dropped: int
    backlog: int
    plan: str | None = None
    overridden: tuple[str, ...] = ()
    served_since: datetime | None = None
    problem: str | None = None

    @property
    def policy(self) -> ChannelPolicy:
        """The policy of the channel."""
        return ChannelPolicy(**{name: getattr(self, name) for name in POLICY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Competition:
    """Some channels of a queue, and the figures of the whole queue from which the channels' shares are computed."""

    queue: str
    channels: tuple[ChannelDemand, ...]
    rival_weight: int
    leased: int
    served_cost: int | None = None

    def share(self, channel: ChannelDemand) -> float | None:
        """Return the channel's part of the leased messages, 0 to 1; None if nothing is leased."""
        return channel.leased / self.leased if self.leased else None

    def cost_share(self, channel: ChannelDemand) -> float | None:
        """Return the channel's part of the cost of lately ended attempts; None if that cost is zero or unknown."""
        return (channel.served_cost or 0) / self.served_cost if self.served_cost else None

    def used(self, channel: ChannelDemand) -> float | None:
        """Return the channel's :meth:`cost_share`; if that is None, its :meth:`share`."""
        cost_share = self.cost_share(channel)
        return self.share(channel) if cost_share is None else cost_share

    def entitled(self, channel: ChannelDemand) -> float:
        """Return the part, 0 to 1, to which the channel's weight entitles it among the channels that compete now."""
        return channel.weight / max(self.rival_weight, channel.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention(Competition):
    """The channels that wait longest and those with the most leased messages, and figures of all channels.

    Attributes:
        channels: The longest wait first. Last come channels with leased, scheduled or held messages and no ready one.
        waiting: How many channels have ready messages.
        rivals: How many channels compete: those with leased messages, and those with ready messages that neither a
            pause nor their own limit or rate holds back.
        rival_weight: The sum of the competing channels' weights.
        served_cost: The cost of the queue's attempts that ended in the last five minutes. Only the last 2,000 attempts
            of all queues are looked at. None: the queue shares by messages, or records no history.
        waits: Median, 90th and 99th percentile and maximum of the channels' waits. Each channel counts once, by its
            oldest ready message. Empty: nothing is ready.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine)
        >>> found = queue.admin.contention(engine)
        >>> [channel] = found.channels
        >>> found.share(channel), found.cost_share(channel), found.used(channel), found.entitled(channel)
        (1.0, None, 1.0, 1.0)
    """

    waiting: int
    rivals: int
    waits: tuple[timedelta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMessage:
    """A message that a consumer has leased, not one held by an ordering key. Without a history *delivered_at* is None.

    See Also:
        :class:`ConsumerInfo`
    """

    message_id: int
    kind: str
    channel: str
    delivered_at: datetime | None
    cancelled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """A consumer with an unexpired lease, at the time of the call. Times are in UTC.

    Attributes:
        leased: Messages that it holds, waiting for a handler or not. An idle worker may have a lease without messages.
        delivered_at: When the message that it has held longest was delivered. None: no message, or no history.
        message_id: The id of that message; without a history, the least id of its messages. None: it holds no message.
        kind: The kind of that message, or None; likewise channel.
        expires_at: When all of its leases will have expired, unless it extends them.
        stop_requested_at: When somebody asked it to stop by ``queue.admin.stop_worker``. None: nobody asked within the
            last hour, or the worker is known to have started after the request.
        cancelled: Cancelled messages that it still holds. If it holds them for long, their handlers ignore the cancel.
        version: The version of the library that a worker runs. None: it has just started, or is no worker.
        handlers: Messages that it holds, waiting for a handler or not. The message that it has held longest comes
            first. The argument *handlers* of ``consumers`` says how many messages are listed at most, by default none.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
        >>> [delivery] = queue.dequeue(engine)
        >>> [consumer] = queue.admin.consumers(engine, handlers=10)
        >>> [held.kind for held in consumer.handlers], consumer.consumer.startswith(f"{consumer.host}:{consumer.pid}:")
        (['parse'], True)
    """

    queue: str
    consumer: str
    leased: int
    delivered_at: datetime | None
    message_id: int | None
    kind: str | None
    channel: str | None
    expires_at: datetime
    waiting_until: datetime | None
    stop_requested_at: datetime | None = None
    stop_requested_by: str | None = None
    cancelled: int = 0
    cancelled_at: datetime | None = None
    version: str | None = None
    concurrency: int | None = None
    handlers: tuple[HeldMessage, ...] = ()

    @property
    def host(self) -> str | None:
        """The host in a generated worker name; None for a name that the user chose."""
        found = _OWN_NAME.fullmatch(self.consumer)
        return found and found[1]

    @property
    def pid(self) -> int | None:
        """The process id in a generated worker name; None for a name that the user chose."""
        found = _OWN_NAME.fullmatch(self.consumer)
        return found and int(found[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterInfo:
    """A message that is not tried again unless it is redriven. Times are in UTC.

    Attributes:
        message_id: The id of the message, which a redrive keeps.
        content: The payload as it is stored.
        max_attempts: The message's own limit. If its retry policy allowed fewer, the reason names the policy's limit.
        deliveries: How often it was ever delivered.

    See Also:
        :class:`~sqlalchemy_fairqueue.queue.DeadLetters`
    """

    message_id: int
    queue: str
    channel: str
    kind: str
    content: bytes
    # Compared, but left out of the hash, since a dict has none.
    headers: dict[str, Any] | None = field(hash=False)
    key: str | None
    ordering_key: str | None
    enqueued_at: datetime
    attempts: int
    max_attempts: int
    deliveries: int
    reason: str
    error: str | None
    died_at: datetime
    decoded: Any = field(repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """The payload; raises PayloadError if the codec cannot decode it, or Python cannot read the headers."""
        if isinstance(self.decoded, PayloadError):
            raise self.decoded
        return self.decoded


AttemptOutcome = Literal["completed", "retried", "released", "buried", "expired", "cancelled"]
MessageState = Literal["leased", "scheduled", "held", "ready"]
MoveOutcome = Literal["moved", "unchanged", "leased", "duplicate", "missing"]
RetryNowOutcome = Literal["due", "unchanged", "redriven", "leased", "duplicate", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetails:
    """An unsettled message at the time of the call. Times are in UTC.

    In a page of ``queue.messages``, *messages_ahead* and *wait* are None, and *history* is empty.

    Attributes:
        content: The payload as it is stored; in a page of ``queue.messages`` its first 65,536 bytes.
        content_size: Bytes of the whole payload.
        headers: As JSON, or None.
        behind: The message of its ordering key that goes before it, or the dead letter that holds this ordering key
            (``on_dead="hold"``). None: it goes first, or has no ordering key.
        due_at: When it may be delivered, at the earliest.
        delivered_at: When the consumer that holds it got it. None: nobody holds it, or the queue recorded no history.
        returned_at: When the message last came back to its channel, was made due early, or came due with a priority.
            None: nothing of the kind has happened since it was enqueued or replaced.
        max_attempts: The message becomes a dead letter after this many attempts, or sooner by its kind's retry policy.
        deliveries: How often it was ever delivered.
        cancelled: Whether it was cancelled and a consumer still holds it.
        expires_at: When the lease of the consumer that holds it expires, unless it is extended.
        unreadable: Why the row cannot be read; then *kind* and *content_size* are None. None: it can be read.
        messages_ahead: Messages of its channel before it. None: there are 1,000 or more, or a consumer holds it.
        wait: Why it waits. None: a consumer holds it.
        history: Its last 100 recorded attempts that ended, the oldest first.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse").message_id
        >>> message = queue.message(engine, message_id)
        >>> message.kind, message.state(datetime.now(UTC)), message.messages_ahead
        ('parse', 'ready', 0)
    """

    message_id: int
    channel: str
    kind: str | None
    content: bytes = field(repr=False)
    content_size: int | None
    headers: str | None = field(repr=False)
    key: str | None
    ordering_key: str | None
    behind: int | None
    enqueued_at: datetime
    due_at: datetime
    delivered_at: datetime | None
    returned_at: datetime | None
    attempts: int
    max_attempts: int
    deliveries: int
    cancelled: bool
    cancelled_at: datetime | None
    consumer: str | None
    expires_at: datetime | None
    error: str | None
    unreadable: str | None
    messages_ahead: int | None = None
    wait: Wait | None = None
    history: tuple[AttemptDetails, ...] = ()

    def state(self, now: datetime) -> MessageState:
        """Return "leased" if a consumer holds it, else "scheduled" if it is due after *now*, else "held" or "ready"."""
        if self.consumer is not None:
            return "leased"
        if self.due_at > now:
            return "scheduled"
        return "ready" if self.behind is None else "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDetails:
    """An ended attempt at a message, from the history of its queue. Times are in UTC.

    Attributes:
        ready_at: When the message became ready for this attempt.
        started_at: When it was delivered.
        outcome: "completed", "retried", "released", "buried", "expired" (its lease ended) or "cancelled".
        error: The beginning of its error, or None.

    See Also:
        :meth:`~sqlalchemy_fairqueue.queue.Admin.attempts`
    """

    message_id: int
    kind: str
    attempt: int
    channel: str
    consumer: str | None
    enqueued_at: datetime
    ready_at: datetime
    started_at: datetime
    finished_at: datetime
    outcome: AttemptOutcome
    error: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Page(Sequence[_Item]):
    items: tuple[_Item, ...]
    next: str | None

    @overload
    def __getitem__(self, index: int) -> _Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_Item]: ...
    def __getitem__(self, index: int | slice) -> _Item | Sequence[_Item]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


class MessagePage(_Page[MessageDetails]):
    """A sequence of messages in the order of ``queue.messages``. A page, empty or not, is the last if ``next`` is None.

    See Also:
        :meth:`~sqlalchemy_fairqueue.Queue.messages`
    """

    __slots__ = ()


class AttemptPage(_Page[AttemptDetails]):
    """A sequence of attempts, the newest first; ``next`` is None on the last page. An empty page need not be the last.

    See Also:
        :meth:`~sqlalchemy_fairqueue.queue.Admin.attempts`
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What ``queue.admin.erase`` has deleted of a channel.

    Attributes:
        messages: Messages that no consumer held.
        leased: Messages that consumers held; their handlers cannot settle them.
        keys: Keys that were taken for a period.
        followups: Follow-ups of unfinished groups.
        audits: Audit entries that lost the channel and the details. They still say who did what, and when.
        left_over: Messages and dead letters that other transactions had locked meanwhile. If any, erase once more.
        forgotten: Whether the channel is gone with its policy. If it is not, and nothing is left over, a worker deletes
            it when the transactions that are open now have ended.

    See Also:
        :class:`~sqlalchemy_fairqueue.queue.Admin`
    """

    messages: int = 0
    leased: int = 0
    dead_letters: int = 0
    attempts: int = 0
    results: int = 0
    keys: int = 0
    schedules: int = 0
    followups: int = 0
    audits: int = 0
    left_over: int = 0
    forgotten: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A recorded action on a queue, a channel or a message, or on the installation.

    Attributes:
        queue: None if the action concerned the installation, such as a shared limit.
        at: In UTC.
        channel: None if the action concerned no single channel.

    See Also:
        :meth:`~sqlalchemy_fairqueue.queue.Admin.record_audit`
    """

    audit_id: str
    queue: str | None
    at: datetime
    who: str
    what: str
    channel: str | None
    message_id: int | None
    details: dict[str, Any] | None


HANDLER_BOUNDS = tuple(
    timedelta(milliseconds=milliseconds)
    for milliseconds in (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
)
"""The times that separate the :attr:`HandlerTimes.counts`; the first count is of attempts below 1 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """How a queue or channel stood in one step of a :class:`Trend`.

    Attributes:
        at: When the step begins, in UTC.
        ready: The most messages that were ready at a sample of the step. None: unknown; likewise oldest_wait.
        oldest_wait: The longest time for which a message had been ready, at any sample of the step.
        served: Attempts that completed a message. None: unknown; likewise failed.
        failed: Attempts that were retried, buried, or lost with their lease. Without a history: new dead letters.

    Example:
        >>> [*_, point] = queue.admin.trend(engine).points
        >>> point.ready is None  # no worker has kept a sample
        True
    """

    at: datetime
    ready: int | None
    oldest_wait: timedelta | None
    served: int | None
    failed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTimes:
    """How long handlers of a kind took, from the delivery to the end of the attempt.

    ``counts`` are the completed, retried and buried attempts by time: below 1 ms, 1 to 3 ms, 3 to 10 ms, 10 to 30 ms
    and so on. The last count is of attempts that took 1,000 s or more.

    Example:
        >>> queue.configure(engine, history=True)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> [times] = queue.admin.trend(engine).handlers
        >>> times.kind, times.attempts, times.within(0.5) is None
        ('parse', 1, False)
    """

    kind: str
    counts: tuple[int, ...]

    @property
    def attempts(self) -> int:
        """The sum of ``counts``."""
        return sum(self.counts)

    def within(self, part: float) -> timedelta | None:
        """Return the time within which *part* of the attempts (0.5: half) ended; None if that time exceeds 1,000 s."""
        below = 0
        for bound, count in zip(HANDLER_BOUNDS, self.counts, strict=False):
            below += count
            if below >= part * self.attempts:
                return bound
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How a queue or channel developed over time, in steps.

    Attributes:
        channel: None: the trend is of the whole queue.
        points: One for each step, the oldest first.
        handlers: How long handlers took, one entry for each kind, those with the most attempts first. Only attempts
            that are among the last 10,000 of all queues count.

    Example:
        >>> trend = queue.admin.trend(engine, over=timedelta(days=1))
        >>> len(trend.points), str(trend.step)
        (96, '0:15:00')
    """

    queue: str
    channel: str | None
    step: timedelta
    points: tuple[TrendPoint, ...]
    handlers: tuple[HandlerTimes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters of a queue with the same kind, reason and error. Times are in UTC.

    Attributes:
        error: The last line of the error, in which # replaces numbers; or None.
        message_ids: The ids of the newest of these dead letters.
    """

    kind: str | None
    reason: str | None
    error: str | None
    letters: int
    channels: int
    first_died_at: datetime
    last_died_at: datetime
    message_ids: tuple[int, ...] = field(repr=False)
