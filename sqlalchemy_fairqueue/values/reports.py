"""Reports on a queue: stats, channels and what they compete for, why they wait, consumers, messages, dead letters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.values.policies import POLICY, ChannelPolicy, PolicyFields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from sqlalchemy_fairqueue.values.fields import Rate


_Item = TypeVar("_Item")
_OWN_NAME = re.compile(r"(.+):(\d+):[0-9a-f]{8}", re.ASCII | re.DOTALL)


class Reason(StrEnum):
    """The reasons of a wait. The first one that holds is given: lifting the others would change nothing.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.pause(engine, "customer-7")
        >>> queue.message(engine, message_id).wait.reason is Reason.PAUSED
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
    """Nothing holds it back, and consumers hold no message at all: the next dequeue of one that knows its kind takes
    it."""
    CAPACITY = "capacity"
    """It has the share of the consumers that it is entitled to and more work than that serves, or no other channel has
    messages out: what it lacks is a consumer that takes more."""
    TURN = "others' turn"
    ORDERING_KEY = "ordering key"
    SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True)
class Taker:
    """A channel that takes capacity.

    Attributes:
        channel: Its name.
        leased: Its messages that consumers hold.
        share: These as a part of all messages that consumers of the queue hold, 0 to 1.
        entitled: The part that its weight entitles it to, 0 to 1.
        weight: Its weight.

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
    """A queue that takes of a shared limit.

    Attributes:
        queue: Its name.
        leased: Its messages that consumers hold.

    Example:
        >>> queue.limits.configure(engine, "mail", max_concurrency=2)
        >>> news = Queue("news")
        >>> for each in (queue, news):
        ...     each.configure(engine, limits=["mail"])
        ...     _, waiting = [each.enqueue(engine, channel="customer-7", payload=number) for number in (1, 2)]
        ...     deliveries = each.dequeue(engine, limit=1)
        >>> wait = news.message(engine, waiting.message_id).wait
        >>> [(taker.queue == queue.name, taker.leased) for taker in wait.queues]
        [(True, 1)]
    """

    queue: str
    leased: int


@dataclass(frozen=True, slots=True)
class LongestOut:
    """The message out that consumers have held longest, of those that a limit counts.

    Attributes:
        message_id: Its id. In a queue that records no history it is the least of these messages.
        channel: Its channel.
        kind: Its kind. None: it cannot be read.
        since: Since when a consumer holds it, in UTC. None: not known, because the queue records no history.

    Example:
        >>> queue.configure(engine, max_concurrency=1, history=True)
        >>> message_id, waiting = [
        ...     queue.enqueue(engine, channel="customer-7", payload=1, kind="parse").message_id for _ in range(2)
        ... ]
        >>> [delivery] = queue.dequeue(engine)
        >>> longest = queue.message(engine, waiting).wait.longest_out
        >>> longest.message_id == message_id, longest.kind, longest.since is None
        (True, 'parse', False)
    """

    message_id: int
    channel: str
    kind: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Wait:
    """The reason for which a message waits, and who has what it waits for.

    Attributes:
        reason: Why it waits.
        until: When the reason ends at the latest, by a rate or by the time for which it is scheduled. None: that is not
            known.
        takers: The channels of the queue that take the capacity it waits for, the most first. Empty: the reason is its
            own.
        limit: The shared limit that holds it back, or None.
        queues: The other queues that draw from that limit, those with the most messages out first.
        behind: The message of its ordering key that goes first, or None.
        used: How many messages count against the max_concurrency that holds it back. None: something else does.
        most: That max_concurrency.
        longest_out: The message that keeps the limit of its channel or of its queue busy for longest. None: another
            reason, or all of them have just ended.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> wait = queue.message(engine, message_id).wait
        >>> str(wait.reason), wait.takers
        ('no consumer', ())
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
    """A reason for which messages of a queue wait, and how many do.

    Attributes:
        reason: Why they wait.
        messages: How many.
        channels: In how many channels.
        until: When the first of the channels is free of it at the latest. None: that is not known.
        limit: The shared limit that holds them back, or None.

    Example:
        >>> @queue.handler
        ... def greet(delivery: Delivery) -> None: ...
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.pause(engine, "customer-7")
        >>> worker = Worker(engine, queue)
        >>> worker.run(drain=True)
        >>> [(str(one.reason), one.messages) for one in worker.leftovers()[0].reasons]
        [('paused', 1)]
    """

    reason: Reason
    messages: int
    channels: int
    until: datetime | None = None
    limit: str | None = None

    def __str__(self) -> str:
        """Its reason and counts, in a line."""
        name = f"{self.reason} {clean(self.limit)}" if self.limit else str(self.reason)
        channels = "1 channel" if self.channels == 1 else f"{self.channels:,} channels"
        first = f"; the first may go at {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else ""
        return f"{name}: {self.messages:,} in {channels}{first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The messages that a drained worker leaves in one of its queues.

    ``str`` of it has a line for the queue and one for each reason.

    Attributes:
        queue: Name of the queue.
        ready: Its messages that could be delivered now, as far as time goes.
        scheduled: Its messages that are due later.
        held: Its messages that wait for others of their ordering keys.
        leased: Its messages that consumers hold.
        reasons: Why those that no consumer holds wait, the reason of the most messages first. They are of at most
            1,000 channels, while the counts are of all.

    Example:
        >>> @queue.handler
        ... def greet(delivery: Delivery) -> None: ...
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(hours=1))
        >>> worker = Worker(engine, queue)
        >>> worker.run(drain=True)
        >>> print(*worker.leftovers())
        left in queue documents...: 1 scheduled
          scheduled: 1 in 1 channel
    """

    queue: str
    ready: int
    scheduled: int
    held: int
    leased: int
    reasons: tuple[LeftoverReason, ...] = ()

    def __str__(self) -> str:
        """The counts and the reasons, in several lines."""
        names = ("ready", "scheduled", "held", "leased")
        counts = ((name, getattr(self, name)) for name in names)
        words = ", ".join(f"{count:,} {name}" for name, count in counts if count)
        return "\n".join([f"left in queue {clean(self.queue)}: {words}", *(f"  {one}" for one in self.reasons)])


_OWN_REASONS = frozenset(
    {Reason.QUEUE_PAUSED, Reason.PAUSED, Reason.OWN_LIMIT, Reason.RATE, Reason.ORDERING_KEY, Reason.SCHEDULED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCapacity:
    """What holds all channels of a queue back: the part of its stats that is known without counting its messages.

    Attributes:
        queue: Name of the queue.
        paused_at: When the queue was paused, in UTC. None: it is not.
        max_concurrency: Most messages of the whole queue that consumers hold at once. None: no limit.
        current_concurrency: How many count against it; those that ended do until the next dequeue. None: neither a
            limit nor a rate was ever set.
        max_cost_out: Most that these messages cost together. None: no limit.
        current_cost: What they cost.
        next_cost: What the message costs that it would deliver first. None: nothing is ready.
        rate_allows_at: When its rate allows the next message, in UTC, or allowed it. None: no rate.
        noted_at: When a dequeue last wrote down what it knew of the queue, in UTC. None: none did.
        consumers: Consumers with a lease that has not ended; a bounded reading counts one at most.
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
    """The state of a queue at the time of the call.

    Attributes:
        queue: Name of the queue.
        channels: How many channels it has, idle ones too.
        ready: Messages that could be delivered now, as far as time goes: those of the next three together.
        deliverable: Those that workers could take now.
        paused: Those of paused channels; all, if the queue is paused.
        limited: Those that limits and rates hold back: of the channel, of the queue, and shared ones.
        scheduled: Messages that are due later.
        held: Messages that wait for others of their ordering keys.
        leased: Messages that consumers hold.
        dead: Dead letters.
        dropped: Messages that were dropped because their channel was full, ever.
        oldest_ready_at: Since when the oldest of the ready messages waits, in UTC. None: nothing is ready.
        paused_at: When the queue was paused, in UTC. None: it is not.
        max_concurrency: Most messages of the whole queue that consumers hold at once. None: no limit.
        current_concurrency: How many count against it; those that ended do until the next dequeue. None: neither a
            limit nor a rate was ever set.
        max_cost_out: Most that these messages cost together. None: no limit.
        current_cost: What they cost. None: neither a limit nor a rate was ever set.
        next_cost: What the message costs that it would deliver first. None: nothing is ready.
        rate: Most messages, or most cost, of the whole queue in a time. None: no rate.
        rate_allows_at: When that allows the next message, in UTC, or allowed it. None: no rate.
        noted_at: When a dequeue last wrote down what it knew of the queue, in UTC. None: none did.
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
        >>> queue.pause(engine)
        >>> stats = queue.stats(engine)
        >>> stats.ready, stats.deliverable, stats.paused, stats.limited
        (1, 0, 1, 0)
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
    dropped: int
    oldest_ready_at: datetime | None
    rate: Rate | None
    signals: int
    served_cost: int | None = None
    served_since: datetime | None = None

    @property
    def undelivered(self) -> int:
        """Its messages that no consumer holds: ready, scheduled and held.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.stats(engine).undelivered
            1
        """
        return self.ready + self.scheduled + self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimit:
    """A limit that several queues draw from, at the time of the call.

    Attributes:
        name: Its name.
        max_concurrency: Most messages of its queues together that consumers hold at once. None: no limit.
        max_cost_out: Most that these messages cost together. None: no limit.
        rate: Most messages, or most cost, of its queues together in a time. None: no rate.
        rate_allows_at: When that allows the next message, in UTC, or allowed it. None: no rate.
        current_concurrency: How many messages of its queues consumers hold.
        current_cost: What they cost.
        queues: The queues that draw from it.
        leased: How many messages of each of these queues consumers hold, in the same order.
        contending: Those of the queues whose limits held messages back at their last dequeue, within the last second.

    Example:
        >>> queue.limits.configure(engine, "ocr", max_concurrency=20)
        >>> queue.configure(engine, limits=["ocr"])
        >>> [limit] = queue.limits.list(engine, "ocr")
        >>> limit.current_concurrency, limit.max_concurrency, limit.queues == (queue.name,)
        (0, 20, True)
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
class ChannelDemand:
    """A channel that waits for consumers or keeps them busy, at the time of the call.

    Attributes:
        channel: Name of the channel.
        ready: Messages that could be delivered now, as far as time goes.
        scheduled: Messages that are due later.
        held: Messages that wait for others of their ordering keys.
        behind: The message that the first of these waits behind. None: none is held, or some messages are ready.
        leased: Messages that consumers hold.
        current_concurrency: How many messages count against max_concurrency; those that ended do until the next
            dequeue.
        max_concurrency: As in its policy.
        current_cost: What the messages cost that count against max_cost_out.
        max_cost_out: As in its policy.
        next_cost: What its first message costs, if it has a max_cost_out.
        rate: As in its policy.
        weight: As in its policy.
        paused_at: When the channel was paused, in UTC. None: it is not.
        oldest_ready_at: Since when the oldest of the ready messages waits, in UTC. None: nothing is ready.
        last_dequeue_at: When the channel was last served, in UTC. None: never.
        rate_allows_at: When its rate allows the next delivery, in UTC. None: it has no rate.
        opens_at: Until when dequeues let it wait, for its rate or its first message, in UTC. None: for no time.
        served_cost: What its attempts that ended lately cost. None: the queue shares by messages, or records no
            history.
        wait: Why it waits, if the reading asked for reasons. None: nothing of it waits, or the reading did not ask.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [demand] = queue.admin.contention(engine).channels
        >>> demand.channel, demand.ready, demand.leased, demand.weight
        ('customer-7', 1, 0, 1)
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
        """Its messages that no consumer holds: ready, scheduled and held.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> [demand] = queue.admin.contention(engine).channels
            >>> demand.undelivered
            1
        """
        return self.ready + self.scheduled + self.held

    @property
    def reason(self) -> Reason | None:
        """The reason for which it waits, as of ``wait``."""
        return self.wait.reason if self.wait else None

    @property
    def competes(self) -> bool:
        """Whether it has messages out, or waits for what others have; its reason of waiting must be known.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> [delivery] = queue.dequeue(engine)
            >>> [demand] = queue.admin.contention(engine).channels
            >>> demand.competes, demand.reason
            (True, None)
        """
        return self.leased > 0 or (self.wait is not None and self.wait.reason not in _OWN_REASONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStats(PolicyFields, ChannelDemand):
    """The state of a channel at the time of the call: its demand, its policy, and what only a full reading counts.

    It has the fields of :class:`ChannelDemand`, and those of the channel's policy: max_concurrency and the others of
    :class:`~sqlalchemy_fairqueue.ChannelPolicy`, with the same meaning.

    Attributes:
        queue: Name of the queue.
        deliverable: Those of its ready messages that workers could take now, if they took from no other channel.
        paused: Those that a pause of the channel or of the queue holds back.
        limited: Those that limits and rates hold back: of the channel, of the queue, and shared ones.
        dead: Dead letters.
        dropped: Messages that were dropped because the channel was full, ever.
        backlog: Undelivered messages that count against max_backlog, as far as the dispatcher knows.
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
        """The policy of the channel, as a value."""
        return ChannelPolicy(**{name: getattr(self, name) for name in POLICY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Competition:
    """Channels beside those that they compete with: the part of a contention that a bounded reading knows.

    Attributes:
        queue: Name of the queue.
        channels: Channels, with those that have the most messages out among them.
        rival_weight: The weights of the channels that compete, together.
        leased: Messages of the queue that consumers hold.
        served_cost: What the attempts of all channels that ended lately cost.
    """

    queue: str
    channels: tuple[ChannelDemand, ...]
    rival_weight: int
    leased: int
    served_cost: int | None = None

    def share(self, channel: ChannelDemand) -> float | None:
        """Return the channel's part of the messages that consumers hold, 0 to 1; None if they hold none."""
        return channel.leased / self.leased if self.leased else None

    def cost_share(self, channel: ChannelDemand) -> float | None:
        """Return the channel's part of what lately ended attempts cost; None if the queue does not know of any."""
        return (channel.served_cost or 0) / self.served_cost if self.served_cost else None

    def used(self, channel: ChannelDemand) -> float | None:
        """Return the part that the channel has of what the queue shares: of the cost, or else of the messages."""
        cost_share = self.cost_share(channel)
        return self.share(channel) if cost_share is None else cost_share

    def entitled(self, channel: ChannelDemand) -> float:
        """Return the part that its weight entitles the channel to beside those that compete now, 0 to 1."""
        return channel.weight / max(self.rival_weight, channel.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention(Competition):
    """The channels of a queue that wait longest and those that hold most messages, and figures of all channels.

    Attributes:
        queue: Name of the queue.
        channels: Those channels, the longest wait first; channels without a ready message come last. Some that have
            held or scheduled messages alone are among them.
        waiting: How many channels of the queue have ready messages.
        rivals: How many channels compete: those with messages out, and those with ready messages that are not paused,
            at their own limit or held back by their rate.
        rival_weight: The weights of the channels that compete, together.
        leased: Messages of the queue that consumers hold.
        served_cost: What the attempts of all channels that ended lately cost: in the last five minutes, or since the
            oldest of the last 2,000 attempts. None: the queue shares by messages, or records no history.
        waits: The median, the 90th and 99th percentile and the longest of the channels' waits. Empty: nothing is ready.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> contention = queue.admin.contention(engine)
        >>> contention.waiting, contention.rivals, contention.leased
        (1, 1, 0)
        >>> [delivery] = queue.dequeue(engine)
        >>> contention = queue.admin.contention(engine)
        >>> [channel] = contention.channels
        >>> contention.share(channel), contention.used(channel), contention.entitled(channel)
        (1.0, 1.0, 1.0)
        >>> contention.cost_share(channel) is None
        True
    """

    waiting: int
    rivals: int
    waits: tuple[timedelta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """A consumer with a lease that has not expired, at the time of the call.

    Attributes:
        queue: Name of the queue.
        consumer: Its name.
        leased: Messages that it holds, those that wait for a handler too.
        delivered_at: Since when it has held the first of them, in UTC. None: it holds none, or the queue records no
            history.
        message_id: The id of that message; without a history, the least id that it holds. None: it holds none.
        kind: The kind of that message, or None.
        channel: The channel of that message, or None.
        expires_at: When its last lease expires unless it is extended, in UTC.
        waiting_until: Until when it waits for work, in UTC. None: it does not wait.
        stop_requested_at: When it was asked to stop (``queue.admin.stop_worker``), in UTC. None: it was not
            within the last hour, or it took or waited for work more than ten seconds later, as a worker does
            that started under the name after the request.
        stop_requested_by: Who asked, or None.
        cancelled: Messages that it holds though they were cancelled: if that lasts, their handlers ignore it.
        cancelled_at: When the first of them was cancelled, in UTC, or None.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
        >>> [delivery] = queue.dequeue(engine)
        >>> [consumer] = queue.admin.consumers(engine)
        >>> consumer.leased, consumer.channel, consumer.kind
        (1, 'customer-7', 'parse')
        >>> consumer.consumer.startswith(f"{consumer.host}:{consumer.pid}:")
        True
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

    @property
    def host(self) -> str | None:
        """The host of a worker without a name of its own: its name is host, process and a random part."""
        found = _OWN_NAME.fullmatch(self.consumer)
        return found and found[1]

    @property
    def pid(self) -> int | None:
        """The process of such a worker on its host."""
        found = _OWN_NAME.fullmatch(self.consumer)
        return found and int(found[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterInfo:
    """A message that will not be tried again unless it is redriven.

    Attributes:
        message_id: The message; it keeps its id when it is redriven.
        queue: Name of the queue.
        channel: Name of the channel.
        kind: Which handler it is for.
        content: The payload as it is stored.
        headers: The headers as they were enqueued, or None.
        key: Its key, or None.
        ordering_key: Its ordering key, or None.
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
        """The decoded payload.

        Raises:
            PayloadError: The content is not the codec's, or the headers are nothing that Python can read.
        """
        if isinstance(self.decoded, PayloadError):
            raise self.decoded
        return self.decoded


AttemptOutcome = Literal["completed", "retried", "released", "buried", "expired", "cancelled"]
MessageState = Literal["leased", "scheduled", "held", "ready"]
MoveOutcome = Literal["moved", "unchanged", "leased", "duplicate", "missing"]
RetryNowOutcome = Literal["due", "unchanged", "redriven", "leased", "duplicate", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetails:
    """A message that is not settled, at the time of the call.

    Attributes:
        message_id: The message.
        channel: Name of the channel.
        kind: Which handler it is for. None: it cannot be read.
        content: The beginning of the payload as it is stored.
        content_size: Bytes of the whole payload. None: it cannot be read.
        headers: Its headers as JSON, or None.
        key: Its key, or None.
        ordering_key: Its ordering key, or None.
        behind: The message of its ordering key that goes before it, or the dead letter that holds the key. None: it
            goes first, or has no ordering key.
        enqueued_at: When it was enqueued, in UTC.
        due_at: From when on it may be delivered, in UTC.
        delivered_at: When it was last delivered, in UTC. None: never, or its queue records no history.
        returned_at: When it last came back undone, in UTC. None: never, or its queue records no history.
        attempts: How many attempts were counted.
        max_attempts: After how many it becomes a dead letter. The retry policy of its kind may allow fewer.
        deliveries: How often it was handed out, ever.
        cancelled: Whether it was cancelled while a consumer holds it.
        cancelled_at: When that was, in UTC. None: it was not.
        consumer: Who holds it, if anybody.
        expires_at: When that consumer's lease expires unless it is extended, in UTC.
        error: The last error, or None.
        unreadable: Why it cannot be read. None: it can.
        messages_ahead: How many messages of its channel come before it. None: 1,000 or more, or a consumer holds it,
            or it is one of a page.
        wait: Why it waits, if :meth:`~sqlalchemy_fairqueue.Queue.message` was asked. None: a consumer holds it, or it
            was not asked.
        history: The attempts that ended before, the first first, if :meth:`~sqlalchemy_fairqueue.Queue.message` was
            asked: those that its queue recorded, the last 100.

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
        """Return "leased" if a consumer holds it, "scheduled" if it is due after *now*, "held" or "ready" else."""
        if self.consumer is not None:
            return "leased"
        if self.due_at > now:
            return "scheduled"
        return "ready" if self.behind is None else "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDetails:
    """An attempt at a message that has ended, from the history of its queue.

    Attributes:
        message_id: The message.
        kind: Which handler it was for.
        attempt: Which attempt it was, as the message counted.
        channel: The channel that the message was in.
        consumer: Who held it; None if that is not known any more.
        enqueued_at: When the message was enqueued, in UTC.
        ready_at: Since when the message was ready before it, in UTC.
        started_at: When it was delivered, in UTC.
        finished_at: When the attempt ended, in UTC.
        outcome: "completed", "retried", "released", "buried", "expired" (its lease ended) or "cancelled".
        error: The beginning of its error, or None.

    Example:
        >>> queue.configure(engine, history=True)
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.retry(engine, queue.dequeue(engine), error="busy")
        >>> [attempt] = queue.admin.attempts(engine, message_id)
        >>> attempt.attempt, attempt.outcome, attempt.error
        (1, 'retried', 'busy')
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
        """One of them, or some."""
        return self.items[index]

    def __len__(self) -> int:
        """How many they are."""
        return len(self.items)


class MessagePage(_Page[MessageDetails]):
    """A page of messages, in order: a sequence of them. There may be none on a page that is not the last.

    Attributes:
        next: Where the next page begins: ``queue.messages(..., after=page.next)``. None: this is the last page.

    Example:
        >>> message_ids = [queue.enqueue(engine, channel="customer-7", payload=page).message_id for page in (1, 2, 3)]
        >>> page = queue.messages(engine, channel="customer-7", limit=2)
        >>> [message.message_id for message in page] == message_ids[:2]
        True
        >>> len(queue.messages(engine, channel="customer-7", limit=2, after=page.next))
        1
    """

    __slots__ = ()


class AttemptPage(_Page[AttemptDetails]):
    """A page of attempts, the last recorded first: a sequence of them. It may be empty and still not be the last.

    Attributes:
        next: Where the next page begins: ``queue.admin.recent_attempts(..., after=page.next)``. None: this is the last
            page.

    Example:
        >>> queue.configure(engine, history=True)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> [attempt.outcome for attempt in queue.admin.recent_attempts(engine)]
        ['completed']
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A thing that somebody did to a queue, a channel or a message.

    Attributes:
        at: When, in UTC.
        who: Who did it.
        what: What, such as "pause".
        channel: To which channel. None: to the queue.
        message_id: To which message, or None.
        details: More about it, or None.

    Example:
        >>> queue.admin.record_audit(engine, "pause", by="dana", channel="customer-7")
        >>> [entry] = queue.admin.audits(engine, channel="customer-7")
        >>> entry.who, entry.what
        ('dana', 'pause')
    """

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
"""Between these times lie the buckets of :attr:`HandlerTimes.counts`; the first lies below, the last above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """A queue or channel in a step of time.

    Attributes:
        at: The begin of the step, in UTC.
        ready: The most messages that were ready at a sample. None: there is no sample.
        oldest_wait: The longest that the oldest of them had waited then. None: there is no sample.
        served: The attempts that completed a message. None: not known, as where the queue records no history.
        failed: Those that were retried, buried, or lost with their lease; without a history, the messages that died.
            None: not known.

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

    Attributes:
        kind: The kind.
        counts: The attempts by time: those below 1 ms, from 1 to 3 ms, from 3 to 10 ms, and so on.

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
        """How many attempts they are."""
        return sum(self.counts)

    def within(self, part: float) -> timedelta | None:
        """Return the bound that this part of the attempts stays below, 0 to 1; None if it lies above the last one."""
        below = 0
        for bound, count in zip(HANDLER_BOUNDS, self.counts, strict=False):
            below += count
            if below >= part * self.attempts:
                return bound
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A queue or channel over time.

    Attributes:
        queue: Name of the queue.
        channel: Name of the channel. None: it is of the queue.
        step: The time between two points.
        points: The points, the oldest first.
        handlers: How long handlers took, the kind with the most attempts first; of the last 10,000 attempts that all
            queues recorded.

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
    """Dead letters of a queue with the same kind, reason and error.

    Attributes:
        kind: Which handler they are for. None: they cannot be read.
        reason: Why they died.
        error: The last line of their error, numbers replaced by #; or None.
        letters: How many they are.
        channels: Of how many channels.
        first_died_at: When the first of them died, in UTC.
        last_died_at: When the last of them died, in UTC.
        message_ids: The newest of them.
    """

    kind: str | None
    reason: str | None
    error: str | None
    letters: int
    channels: int
    first_died_at: datetime
    last_died_at: datetime
    message_ids: tuple[int, ...] = field(repr=False)


TAKERS = 3
"""Channels that a wait names."""

_OF_OTHERS = frozenset({Reason.QUEUE_LIMIT, Reason.QUEUE_RATE, Reason.SHARED_LIMIT, Reason.SHARED_RATE, Reason.TURN})
_Channel = TypeVar("_Channel", bound=ChannelDemand)


def with_waits(
    queue: QueueCapacity,
    competition: Competition,
    limits: Sequence[SharedLimit],
    channels: Iterable[_Channel],
    now: datetime,
) -> tuple[_Channel, ...]:
    """Return channels with the reasons for which they wait; those without undelivered messages have none.

    Args:
        queue: What holds the queue back.
        competition: The channels with the most messages out, and what they have together.
        limits: The shared limits that the queue draws from.
        channels: The channels, whether the competition lists them or not.
        now: The time of all of these.
    """
    # One more than a wait names: the channel itself may be among them.
    holding = nsmallest(TAKERS + 1, (one for one in competition.channels if one.leased), key=lambda one: -one.leased)

    def wait(channel: ChannelDemand) -> Wait | None:
        if channel.oldest_ready_at is None:
            if channel.held:
                return Wait(Reason.ORDERING_KEY, behind=channel.behind)
            return Wait(Reason.SCHEDULED) if channel.scheduled else None
        held = next(_holds(queue, limits, channel, now), None) or Wait(_turn(competition, channel))
        if held.reason not in _OF_OTHERS:
            return held
        takers = [
            Taker(one.channel, one.leased, competition.share(one) or 0.0, competition.entitled(one), one.weight)
            for one in holding
            if one.channel != channel.channel
        ]
        return replace(held, takers=tuple(takers[:TAKERS]))

    return tuple(replace(channel, wait=wait(channel)) for channel in channels)


def _holds(
    queue: QueueCapacity, limits: Sequence[SharedLimit], channel: ChannelDemand, now: datetime
) -> Iterator[Wait]:
    """Yield the reasons that hold a channel back, the strongest first, as the last dequeue found them.

    The next dequeue hears of messages that have ended and of times that have come, and takes messages in the same
    transaction. So what a limit holds back is never seen without it, however short its messages are.
    """
    allows_at, queue_allows_at = channel.rate_allows_at, queue.rate_allows_at
    is_rated = _is_later(allows_at, now, is_unheard=channel.opens_at == allows_at)
    is_queue_rated = queue_allows_at is not None and _is_later(
        queue_allows_at, now, is_unheard=queue.noted_at is not None and queue.noted_at < queue_allows_at
    )
    checks = (
        (queue.paused_at is not None, Wait(Reason.QUEUE_PAUSED)),
        (channel.paused_at is not None, Wait(Reason.PAUSED)),
        (not queue.consumers, Wait(Reason.NO_CONSUMER)),
        (_is_full(channel, channel.next_cost), _with_used(Wait(Reason.OWN_LIMIT), channel)),
        (is_rated, Wait(Reason.RATE, allows_at)),
        (_is_full(queue, queue.next_cost), _with_used(Wait(Reason.QUEUE_LIMIT), queue)),
        (is_queue_rated, Wait(Reason.QUEUE_RATE, queue_allows_at)),
    )
    yield from (wait for holds, wait in checks if holds)
    found = [(Reason.SHARED_LIMIT, one) for one in limits if _is_full(one, queue.next_cost)]
    found += [(Reason.SHARED_RATE, one) for one in limits if _is_later(one.rate_allows_at, now)]
    # If the limits held the last dequeue back, the scarcest did: it was full, or left what it had to another queue.
    contended = [(room, one) for one in limits if queue.queue in one.contending for room in _rooms(one, now)]
    found += [(reason, one) for (_, reason), one in sorted(contended, key=lambda pair: pair[0])]
    for reason, one in found:
        until = one.rate_allows_at if reason is Reason.SHARED_RATE else None
        wait = Wait(reason, until, limit=one.name, queues=_others(one, queue.queue))
        yield _with_used(wait, one) if reason is Reason.SHARED_LIMIT else wait


_LATE = timedelta(seconds=1)
"""A rate holds for so long after it allows a message, unless a dequeue has come since: consumers may be late."""


def _is_later(instant: datetime | None, now: datetime, *, is_unheard: bool = False) -> bool:
    return instant is not None and instant > (now - _LATE if is_unheard else now)


def _rooms(limit: SharedLimit, now: datetime) -> Iterator[tuple[float, Reason]]:
    """Yield about how many messages each part of a shared limit lets out."""
    if limit.max_concurrency is not None:
        yield limit.max_concurrency - limit.current_concurrency, Reason.SHARED_LIMIT
    if limit.max_cost_out is not None:
        yield limit.max_cost_out - limit.current_cost, Reason.SHARED_LIMIT
    if limit.rate is not None and limit.rate_allows_at is not None:
        yield (now - limit.rate_allows_at) / limit.rate.interval, Reason.SHARED_RATE


def _is_full(limited: ChannelDemand | QueueCapacity | SharedLimit, next_cost: int | None) -> bool:
    most, most_cost, cost = limited.max_concurrency, limited.max_cost_out, limited.current_cost or 0
    if most is not None and (limited.current_concurrency or 0) >= most:
        return True
    return most_cost is not None and 0 < cost > most_cost - (next_cost or 0)


def _with_used(wait: Wait, limited: ChannelDemand | QueueCapacity | SharedLimit) -> Wait:
    """Return the wait for a limit with what is used of it, if that is a limit of messages that is reached."""
    used, most = limited.current_concurrency or 0, limited.max_concurrency
    return wait if most is None or used < most else replace(wait, used=used, most=most)


def _others(limit: SharedLimit, queue: str) -> tuple[QueueTaker, ...]:
    of_queues = zip(limit.queues, limit.leased, strict=True)
    others = (QueueTaker(name, leased) for name, leased in of_queues if name != queue)
    return tuple(sorted(others, key=lambda one: -one.leased))


def _turn(competition: Competition, channel: ChannelDemand) -> Reason:
    if not competition.leased:
        return Reason.NEXT
    if competition.leased <= channel.leased:
        # Consumers work for no other one.
        return Reason.CAPACITY
    used = competition.used(channel) or 0.0
    return Reason.CAPACITY if used >= competition.entitled(channel) else Reason.TURN
