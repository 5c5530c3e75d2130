"""Reports on a queue: its stats, those of its channels, its dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.values.policies import ChannelPolicy, PolicyFields, policy_fields

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy_fairqueue.values.rates import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """The state of a queue at the time of the call.

    Attributes:
        queue: Name of the queue.
        channels: How many channels it has, idle ones too.
        ready: Messages that could be delivered now, as far as time goes.
        scheduled: Messages that are due later.
        leased: Messages that consumers hold.
        dead: Dead letters.
        dropped: Messages that were dropped because their channel was full, ever.
        oldest_ready_at: Since when the oldest of the ready messages waits, in UTC. None: nothing is ready.
        paused_at: When the queue was paused, in UTC. None: it is not.
        max_concurrency: Most messages of the whole queue that consumers hold at once. None: no limit.
        current_concurrency: How many count against it. None: neither a limit nor a rate was ever set.
        rate: Most messages of the whole queue in a time. None: no rate.
        rate_allows_at: When that allows the next message, in UTC, or allowed it. None: no rate.
        signals: Signals that no dequeue has heard yet; thousands for long mean that nobody dequeues.
        consumers: Consumers with a lease that has not ended.
        served_cost: What the attempts that ended since *served_since* cost. None: the queue records no history.
        served_since: Since when, in UTC: since five minutes ago, or since the oldest of the last 2,000 attempts that
            all queues recorded, if that is later.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> receipt = queue.enqueue(engine, channel="customer-8", payload=1, delay=timedelta(hours=1))
        >>> stats = queue.stats(engine)
        >>> stats.ready, stats.scheduled, stats.leased, stats.dead
        (1, 1, 0, 0)
    """

    queue: str
    channels: int
    ready: int
    scheduled: int
    leased: int
    dead: int
    dropped: int
    oldest_ready_at: datetime | None
    paused_at: datetime | None
    max_concurrency: int | None
    current_concurrency: int | None
    rate: Rate | None
    rate_allows_at: datetime | None
    signals: int
    consumers: int
    served_cost: int | None = None
    served_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimit:
    """A limit that several queues draw from, at the time of the call.

    Attributes:
        name: Its name.
        max_concurrency: Most messages of its queues together that consumers hold at once. None: no limit.
        rate: Most messages of its queues together in a time. None: no rate.
        rate_allows_at: When that allows the next message, in UTC, or allowed it. None: no rate.
        current_concurrency: How many messages of its queues consumers hold.
        queues: The queues that draw from it.
        leased: How many messages of each of these queues consumers hold, in the same order.

    Example:
        >>> queue.limits.configure(engine, "ocr", max_concurrency=20)
        >>> queue.configure(engine, limits=["ocr"])
        >>> [limit] = queue.limits.list(engine, "ocr")
        >>> limit.current_concurrency, limit.max_concurrency, limit.queues == (queue.name,)
        (0, 20, True)
    """

    name: str
    max_concurrency: int | None
    rate: Rate | None
    rate_allows_at: datetime | None
    current_concurrency: int
    queues: tuple[str, ...]
    leased: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInfo:
    """A plan at the time of the call: a policy with a name, which channels follow.

    Attributes:
        name: Its name.
        policy: The policy of the channels that follow it, but for the fields that were configured for one alone.
        channels: How many channels follow it.
        is_default: Whether channels that are made from now on follow it.
        spread: Whether its last change is with all of its channels. Consumers bring it to them.

    Example:
        >>> queue.plans.configure(engine, "gold", weight=3)
        >>> queue.configure_channel(engine, "customer-7", plan="gold")
        >>> [plan] = queue.plans.list(engine)
        >>> plan.name, plan.policy.weight, plan.channels
        ('gold', 3, 1)
    """

    name: str
    policy: ChannelPolicy
    channels: int
    is_default: bool
    spread: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStats(PolicyFields):
    """The state of a channel at the time of the call.

    It has the fields of the channel's policy too: max_concurrency and the others of
    :class:`~sqlalchemy_fairqueue.ChannelPolicy`, with the same meaning.

    Attributes:
        queue: Name of the queue.
        channel: Name of the channel.
        ready: Messages that could be delivered now, as far as time goes.
        scheduled: Messages that are due later.
        leased: Messages that consumers hold.
        dead: Dead letters.
        dropped: Messages that were dropped because the channel was full, ever.
        current_concurrency: How many messages count against max_concurrency.
        backlog: Undelivered messages that count against max_backlog, as far as the dispatcher knows.
        paused_at: When the channel was paused, in UTC. None: it is not.
        oldest_ready_at: Since when the oldest of the ready messages waits, in UTC. None: nothing is ready.
        last_dequeue_at: When the channel was last served, in UTC. None: never.
        rate_allows_at: When its rate allows the next delivery, in UTC. None: it has no rate.
        plan: The plan that the channel follows. None: none.
        overridden: The fields of its policy that were configured for it alone.
        served_cost: What its attempts that ended since *served_since* cost. None: the queue records no history.
        served_since: Since when, in UTC, as in :class:`QueueStats`.
        problem: Why a dequeue has paused the channel: which message can neither be delivered nor become a dead letter.
            None: it has not.

    Example:
        >>> queue.configure_channel(engine, "customer-7", max_concurrency=2)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [channel] = queue.channels(engine)
        >>> channel.ready, channel.max_concurrency, channel.policy.weight
        (1, 2, 1)
    """

    queue: str
    channel: str
    ready: int
    scheduled: int
    leased: int
    dead: int
    dropped: int
    current_concurrency: int
    backlog: int
    paused_at: datetime | None
    oldest_ready_at: datetime | None
    last_dequeue_at: datetime | None
    rate_allows_at: datetime | None = None
    plan: str | None = None
    overridden: tuple[str, ...] = ()
    served_cost: int | None = None
    served_since: datetime | None = None
    problem: str | None = None

    @property
    def policy(self) -> ChannelPolicy:
        """The policy of the channel, as a value."""
        return ChannelPolicy(**{name: getattr(self, name) for name in policy_fields()})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterInfo:
    """A message that will not be tried again unless it is redriven.

    Attributes:
        message_id: The message; it keeps its id when it is redriven.
        queue: Name of the queue.
        channel: Name of the channel.
        kind: Which handler it is for.
        content: The payload as it is stored.
        headers: What was enqueued as headers, or None.
        key: Its key, or None.
        enqueued_at: When it was enqueued, in UTC.
        attempts: How many attempts were counted.
        max_attempts: The most that the message itself allowed. Its retry policy may have allowed fewer; then the reason
            names that limit.
        deliveries: How often it was handed out, ever.
        reason: Why it died.
        error: The last error, or None.
        died_at: When, in UTC.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload={"number": "555"})
        >>> queue.bury(engine, queue.dequeue(engine), reason="there is no such number")
        >>> [letter] = queue.dead_letters.list(engine)
        >>> letter.reason, letter.payload, letter.attempts
        ('there is no such number', {'number': '555'}, 1)
    """

    message_id: int
    queue: str
    channel: str
    kind: str
    content: bytes
    # Part of the value, but a dict has no hash.
    headers: dict[str, Any] | None = field(hash=False)
    key: str | None
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
        """The decoded payload.

        Raises:
            PayloadError: The content is not the codec's, or the headers are nothing that Python can read.
        """
        if isinstance(self.decoded, PayloadError):
            raise self.decoded
        return self.decoded
