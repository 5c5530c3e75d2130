"""Messages to enqueue and their receipts, deliveries and their leases, and groups of messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack, get_args
from uuid import UUID

from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.values.checks import (
    check_choice,
    check_count,
    check_duration,
    check_flag,
    check_instant,
    check_name,
    check_names,
    is_plain_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


OnDuplicate = Literal["skip", "raise", "replace"]
UniqueFrom = Literal["enqueue", "completion"]
EnqueueOutcome = Literal["created", "duplicate", "replaced", "coalesced", "dropped"]
UndeliveredState = Literal["ready", "scheduled", "held"]
CancelOutcome = Literal["cancelled", "leased", "missing"]

FairBy = Literal["messages", "cost", "seconds"]
OnDead = Literal["continue", "hold"]

MOST_COST = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """A message to enqueue.

    Attributes:
        channel: Usually the tenant; 1 to 512 bytes. The first enqueue creates it.
        payload: Anything that the queue's codec encodes.
        kind: Selects the handler.
        delay: The message is due this long after the transaction sends it, up to 365 days. Give delay or at, not both.
        at: The message is due at this instant (aware), up to the year 9999 in UTC; a past instant means now.
        priority: 1 or more. Of the due messages of a channel those with a higher number go first, those without a
            priority last, unless the channel's ``priority_aging`` also counts how long they have waited. Retries,
            releases and redrives keep the priority.
        key: Unique among the messages of the channel that have not ended; see on_duplicate.
        headers: A small JSON object for tracing and routing, at most 65,536 bytes as PostgreSQL writes it. The codec
            does not encode it.
        max_attempts: A failing message becomes a dead letter after this many attempts. None: ``Queue(max_attempts=)``.
        on_duplicate: What happens if another message has the key. "skip": nothing is added; the receipt names the other
            message. "raise": DuplicateMessage is raised, on a session by the COMMIT. "replace": the other message keeps
            its id, enqueued_at and group, and takes everything else from the new message; its attempts start from zero.
            With a delay this is a debounce. If the other message is leased, it loses the key instead, and the new
            message is added. If the new message has a unique_for, the rules under unique_for come first.
        cost: How much of its channel's share the message uses: 1 to 1,000,000,000, in one unit for the whole queue,
            such as pages or tokens; milliseconds in a queue that is fair by seconds. An estimate is enough, since a
            settlement can correct it.
        unique_for: A period, up to 365 days, or None for no period. With or without a period, this message has the key
            until it ends. A second message that also has a unique_for finds the key taken until the period of this
            message ends, even if this message ends earlier. If the second message says "replace", there are two cases
            until the period ends. If this message still waits, it is rewritten, and a new period begins. If this
            message is leased or has ended, nothing is added, and the outcome is "duplicate".
        unique_from: When the period of unique_for begins. "enqueue": when the message is sent. "completion": when the
            message ends, in whatever way.
        ordering_key: 1 to 512 bytes, such as the id of a conversation. Messages of a channel with the same ordering key
            are delivered one at a time, in the order of their enqueues. A message that waits for a retry holds the next
            ones back, until it is completed, dead, cancelled or purged. In a queue with ``on_dead="hold"``, a dead
            letter holds them back too. The ordering keys of a channel take turns.
        coalesce: Add nothing while another message of the channel, kind and ordering_key waits for a consumer; a leased
            message does not wait. The waiting message keeps its payload and time. It is not delivered before this
            transaction ends, so its handler sees what this transaction committed. Give an ordering_key and no key.

    Example:
        >>> Enqueue(channel="customer-7", payload={"file": "a.pdf"}, kind="parse", delay=timedelta(minutes=5)).kind
        'parse'
    """

    channel: str
    payload: Any
    kind: str = "default"
    delay: timedelta | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    headers: Mapping[str, Any] | None = None
    max_attempts: int | None = None
    on_duplicate: OnDuplicate = "skip"
    cost: int = 1
    unique_for: timedelta | None = None
    unique_from: UniqueFrom = "enqueue"
    ordering_key: str | None = None
    coalesce: bool = False

    def __post_init__(self) -> None:
        channel, kind = self.channel, self.kind
        # The names are looked at here first, since two calls of check_name would take as long as all other checks.
        if type(channel) is not str or type(kind) is not str or not (is_plain_name(channel) and is_plain_name(kind)):
            check_name("channel", channel)
            check_name("kind", kind)
        if self.delay is not None and self.at is not None:
            raise InvalidArgument("message has delay and at; both say when it is due: give one of them")
        if self.delay is not None:
            object.__setattr__(self, "delay", check_duration("delay", self.delay))
        if self.at is not None:
            check_instant("at", self.at)
        if self.priority is not None:
            check_count("priority", self.priority, 1, 2**31 - 1)
        if self.max_attempts is not None:
            check_count("max_attempts", self.max_attempts, 1, 2**31 - 1)
        if self.cost != 1:
            check_count("cost", self.cost, 1, MOST_COST)
        if self.key is not None or self.ordering_key is not None or self.coalesce:
            self._check_names()
        if self.on_duplicate != "skip" or self.unique_for is not None or self.unique_from != "enqueue":
            self._check_key()

    def _check_names(self) -> None:
        check_names(key=self.key, ordering_key=self.ordering_key)
        check_flag("coalesce", self.coalesce)
        if self.coalesce and (self.ordering_key is None or self.key is not None):
            raise InvalidArgument(
                f"coalesce is True, ordering_key {self.ordering_key!r:.80} and key {self.key!r:.80}; give an "
                "ordering_key, and no key"
            )

    def _check_key(self) -> None:
        if self.on_duplicate != "skip":
            check_choice("on_duplicate", self.on_duplicate, ("skip", "raise", "replace"))
            if self.key is None:
                raise InvalidArgument(
                    f"on_duplicate is {self.on_duplicate!r} and there is no key, so that nothing is a duplicate; "
                    "give a key"
                )
        if self.unique_for is not None:
            period = check_duration("unique_for", self.unique_for, timedelta(microseconds=1))
            object.__setattr__(self, "unique_for", period)
            check_choice("unique_from", self.unique_from, ("enqueue", "completion"))
            if self.key is None:
                raise InvalidArgument(
                    f"unique_for is {self.unique_for!r} and there is no key, so that nothing is unique; give a key"
                )
        elif self.unique_from != "enqueue":
            raise InvalidArgument(
                f"unique_from is {self.unique_from!r:.80} and there is no unique_for; give the period, or leave it out"
            )


class EnqueueOptions(TypedDict, total=False):
    """The arguments of :class:`Enqueue` besides channel, kind and payload."""

    delay: timedelta | None
    at: datetime | None
    priority: int | None
    key: str | None
    headers: Mapping[str, Any] | None
    max_attempts: int | None
    on_duplicate: OnDuplicate
    cost: int
    unique_for: timedelta | None
    unique_from: UniqueFrom
    ordering_key: str | None
    coalesce: bool


@dataclass(slots=True, eq=False)
class Receipt:
    """The receipt of an enqueue. On a session the attributes below are None until the COMMIT.

    Attributes:
        message_id: None also for a dropped message; calls that take an id refuse None with InvalidArgument. For a
            duplicate: the message that has the key; with ``unique_for`` that message may have ended.
        created: Whether a message was added.
        outcome: "created"; "duplicate" if the key was taken; "replaced" if the message that has the key was rewritten;
            "coalesced" if nothing was added because another message of the ordering key waits, whose id is
            *message_id*; "dropped" if the channel was full and its policy says "drop".

    Example:
        >>> with Session(engine) as session, session.begin():
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=1, key="invoice-12")
        ...     again = queue.enqueue(session, channel="customer-7", payload=1, key="invoice-12")
        >>> receipt.outcome, again.outcome, again.message_id == receipt.message_id
        ('created', 'duplicate', True)
    """

    channel: str
    message_id: int | None = None
    created: bool | None = None
    outcome: EnqueueOutcome | None = None


@dataclass(slots=True, eq=False)
class CancelReceipt:
    """The receipt of a cancel.

    Attributes:
        message_id: None if the cancel named messages by their key or ordering key.
        outcome: On a session None until the COMMIT. "cancelled": the message is never delivered. "leased": a consumer
            holds it; it is never delivered again, and its worker learns of the cancel at the next heartbeat. "missing":
            the message has ended, or the queue never had it. For several messages: "leased" if any is leased, else
            "cancelled" if any was cancelled, else "missing".
        outcomes: By message id; None while *outcome* is None; empty if no message has the cancel's key or ordering key.

    See Also:
        :meth:`~sqlalchemy_fairqueue.Queue.cancel`
    """

    message_id: int | None
    outcome: CancelOutcome | None = None
    outcomes: Mapping[int, CancelOutcome] | None = None


class MessageName(NamedTuple):
    """What names messages in a channel: their key, their ordering key, or both."""

    channel: str
    key: str | None
    ordering_key: str | None


class MessageFilters(TypedDict, total=False):
    """Filters for messages of a channel. All that are not None must match."""

    kind: str | None
    key: str | None
    ordering_key: str | None


class UndeliveredFilters(MessageFilters, total=False):
    """Filters for the undelivered messages of a channel, enqueued at *since* or later and before *until* (aware)."""

    state: UndeliveredState | None
    since: datetime | None
    until: datetime | None


class DeadLetterFilters(MessageFilters, total=False):
    """Filters for dead letters; key and ordering_key need a channel."""

    channel: str | None


def checked_filters(
    *,
    channel: str | None = None,
    kind: str | None = None,
    key: str | None = None,
    ordering_key: str | None = None,
    **others: Any,
) -> dict[str, Any]:
    names = {"channel": channel, "kind": kind, "key": key, "ordering_key": ordering_key}
    check_names(**names)
    if channel is None and (key or ordering_key) is not None:
        raise InvalidArgument(
            f"key is {key!r:.80}, ordering_key {ordering_key!r:.80} without a channel; they belong to one: give it"
        )
    for what in "since", "until":
        if others.get(what) is not None:
            check_instant(what, others[what])
    return names | others


def undelivered(
    channel: str, *, state: object = None, since: object = None, until: object = None, **names: Unpack[MessageFilters]
) -> dict[str, Any]:
    if state is not None:
        check_choice("state", state, get_args(UndeliveredState))
    check_name("channel", channel)
    return checked_filters(channel=channel, **names, state=state, since=since, until=until)


@dataclass(slots=True, eq=False)
class PurgeReceipt:
    """The receipt of a purge. ``purged`` is the number of deleted messages; on a session it is None until the COMMIT.

    See Also:
        :meth:`~sqlalchemy_fairqueue.Queue.purge`
    """

    channel: str
    purged: int | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of a consumer to hold its messages until ``expires_at`` by the database's clock, unless it is extended.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine, lease=timedelta(minutes=5))
        >>> delivery.lease.expires_at - datetime.now(UTC) > timedelta(minutes=4)
        True
        >>> delivery.lease.lost, delivery.lease.lost_for(delivery), delivery.lease.measured(delivery)
        (False, False, (None, None))
    """

    id: int
    consumer: str
    expires_at: datetime

    @property
    def lost(self) -> bool:
        """Whether the holder knows that it has lost the lease; always False outside of a worker."""
        return False

    def lost_for(self, delivery: Delivery) -> bool:  # noqa: ARG002 - a worker's lease uses it
        """Return whether the holder knows that it has lost a delivery; always False outside of a worker."""
        return False

    def measured(self, delivery: Delivery) -> tuple[int | None, int | None]:  # noqa: ARG002 - as above
        """End the charges that a worker makes while a handler runs. Return the measured cost and the charged cost.

        The library calls this when it settles a delivery of a queue that is fair by seconds. The settlement charges the
        difference of the two. Outside of a worker both costs are None.
        """
        return None, None


class Undecoded(NamedTuple):
    """Stands for a payload that nobody has asked for yet. *decode* makes it from the content and the kind."""

    decode: Callable[[bytes, str], Any]


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A message that a consumer holds under a lease. The consumer must settle the message before the lease ends.

    Attributes:
        content: The payload as it is stored.
        headers: As they were enqueued; None if there are none, or if Python cannot read them.
        attempt: The number of this attempt, from 1; releases are not counted.
        deliveries: How often the message was ever delivered; a part of the fencing token.
        holds_slot: Whether a settlement may free a slot of a limit of the channel or the queue.
        settled: A list with the verb by which this process settled the message, such as ["complete"]. Before that, and
            on a session until the COMMIT, the list is empty.
        is_timed: Whether the queue is fair by seconds, so that a worker measures the handler's time.
        keeps_result: Whether the queue kept results at the delivery; otherwise a completion stores none.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload={"file": "a.pdf"}, kind="parse")
        >>> [delivery] = queue.dequeue(engine)
        >>> delivery.channel, delivery.kind, delivery.payload["file"], delivery.attempt
        ('customer-7', 'parse', 'a.pdf', 1)
    """

    message_id: int
    queue: str
    channel: str
    kind: str
    content: bytes
    # Compared, but left out of the hash, since a dict has none.
    headers: dict[str, Any] | None = field(hash=False)
    attempt: int
    max_attempts: int
    enqueued_at: datetime
    lease: Lease
    deliveries: int
    row_id: str = field(repr=False)
    decoded: Any = field(repr=False, compare=False)
    ordering_key: str | None = None
    holds_slot: bool = field(default=True, repr=False)
    is_timed: bool = field(default=False, repr=False)
    keeps_result: bool = field(default=False, repr=False)
    settled: list[str] = field(default_factory=list, repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """The payload, decoded on first access, so that an unused large payload costs nothing.

        Raises:
            PayloadError: The codec cannot decode the content. Unreadable headers raise the error too, so that no
                handler takes them for missing headers. Bury the message.
        """
        decoded = self._decode()
        if isinstance(decoded, PayloadError):
            raise decoded
        return decoded

    def _decode(self) -> Any:
        """Decode the payload on the first call; threads that call at the same time may decode it twice."""
        decoded = self.decoded
        if isinstance(decoded, Undecoded):
            decoded = vars(self)["decoded"] = decoded.decode(self.content, self.kind)
        return decoded

    def __getstate__(self) -> dict[str, Any]:
        """Decode the payload, since a process that gets a copy may lack the codec."""
        return {**vars(self), "decoded": self._decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How many messages a call of a handler gets, at most.

    Attributes:
        max_messages: 2 to 1,000.
        max_cost: The most that the messages cost together, in the unit of ``enqueue(cost=)``. One alone may cost more.

    Example:
        >>> @queue.handler("embed", batch=Batch(max_messages=50, max_cost=8000))
        ... def embed(deliveries: list[Delivery]) -> None:
        ...     print(deliveries[0].channel, [delivery.payload for delivery in deliveries])
        >>> receipts = [queue.enqueue(engine, channel="customer-7", payload=text, kind="embed") for text in ("a", "b")]
        >>> Worker(engine, queue, concurrency=1).run(drain=True)
        customer-7 ['a', 'b']
    """

    max_messages: int
    max_cost: int | None = None

    def __post_init__(self) -> None:
        check_count("max_messages", self.max_messages, 2, 1000)
        if self.max_cost is not None:
            check_count("max_cost", self.max_cost, 1, 10**15)


class Deliveries(list[Delivery]):
    """The deliveries of one dequeue, in the order of the channels' turns.

    ``due_in`` is how long to wait before the next dequeue. Zero: more may be due now. None: as far as is known, nothing
    can be delivered until somebody enqueues or settles a message, or changes settings.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(minutes=5))
        >>> batch = queue.dequeue(engine)
        >>> len(batch), batch.due_in > timedelta(minutes=4)
        (0, True)
    """

    def __init__(self, deliveries: list[Delivery], due_in: timedelta | None) -> None:
        super().__init__(deliveries)
        self.due_in = due_in


GROUP_HEADER = "group"
"""The header of a member: the id of its group."""
AFTER_GROUP_HEADER = "after_group"
"""The header of the message that follows a group: the group's id and counts."""


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """How the members of a finished group ended; the handler of its follow-up has this as ``context.after_group``.

    Attributes:
        total: All members, including those that members added.
        failed: Members that became dead letters.
        cancelled: Members that were cancelled or purged.

    Example:
        >>> @queue.handler("page")
        ... def page(delivery: Delivery) -> None: ...
        >>> @queue.handler("report")
        ... def report(delivery: Delivery, context: Context) -> None:
        ...     print(f"{context.after_group.done} of {context.after_group.total} pages")
        >>> with rolled_back(engine) as session:
        ...     with queue.group(session, then=Enqueue(channel="customer-7", payload=1, kind="report")) as group:
        ...         receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=1, kind="page")])
        ...     performed = drain(session, queue)
        1 of 1 pages
    """

    id: UUID
    total: int
    done: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class GroupStatus(GroupCounts):
    """The present counts of a group.

    Attributes:
        pending: Members that have not ended.
        finished_at: When the follow-up was enqueued; without a follow-up, when a worker found that all members had
            ended. None: the group is not finished.
        message_id: The follow-up, once it is enqueued.
        problem: Why the last try to finish the group failed; workers try again.

    See Also:
        :class:`~sqlalchemy_fairqueue.queue.Groups`
    """

    pending: int
    created_at: datetime
    finished_at: datetime | None
    message_id: int | None
    problem: str | None


class GroupCancellation(NamedTuple):
    """The result of cancelling a group.

    Attributes:
        cancelled: Members that no consumer held; they were deleted.
        leased: Members that consumers hold. If their consumers complete them, the group still counts them as cancelled.

    See Also:
        :class:`~sqlalchemy_fairqueue.queue.Groups`
    """

    cancelled: int
    leased: int


def checked_group_id(group_id: object) -> UUID:
    if isinstance(group_id, UUID):
        return group_id
    if isinstance(group_id, str):
        try:
            return UUID(group_id)
        except ValueError:
            pass
    raise InvalidArgument(f"group_id is {group_id!r:.80}; give the id of a group, a UUID")


def group_of_headers(headers: Mapping[str, Any] | None) -> UUID | None:
    try:
        return checked_group_id((headers or {}).get(GROUP_HEADER))
    except InvalidArgument:
        return None


def counts_of_headers(headers: Mapping[str, Any] | None) -> GroupCounts | None:
    found: Any = (headers or {}).get(AFTER_GROUP_HEADER)
    try:
        counts = [int(found[name]) for name in ("total", "done", "failed", "cancelled")]
        return GroupCounts(checked_group_id(found["id"]), *counts)
    except (InvalidArgument, LookupError, TypeError, ValueError):
        return None
