"""Messages to enqueue with their receipts, deliveries and their leases, and groups of messages."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, get_args
from uuid import UUID

from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.times import instant_microseconds
from sqlalchemy_fairqueue.values.checks import (
    check_choice,
    check_count,
    check_duration,
    check_instant,
    check_name,
    check_names,
    is_plain_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime


OnDuplicate = Literal["skip", "raise", "replace"]
UniqueFrom = Literal["enqueue", "completion"]
EnqueueOutcome = Literal["created", "duplicate", "replaced", "coalesced", "dropped"]
UndeliveredState = Literal["ready", "scheduled", "held"]
CancelOutcome = Literal["cancelled", "leased", "missing"]

FairBy = Literal["messages", "cost", "seconds"]
OnDead = Literal["continue", "hold"]

MOST_COST = 1_000_000_000
"""The most that a message may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """A message to be.

    Attributes:
        channel: Which channel, usually the tenant; 1 to 512 bytes. Made on first use.
        payload: Anything that the queue's codec takes.
        kind: Which handler it is for.
        delay: Not before so much time from the sending of the transaction's queue work, up to 365 days: beyond, a
            wrong unit is likelier than a wish. At most one of delay and at.
        at: Not before this instant (aware), up to the year 9999 in UTC; one in the past means now.
        priority: 1 or more: before ordinary messages of the channel, 5 before 1, from the time on when the message is
            due. Retries, releases and redrives keep it. A policy may weigh it against waiting.
        key: Unique among the messages of the channel that are not completed or dead: while one stands, on_duplicate
            says what another does.
        headers: Small JSON object beside the payload, for tracing and routing, of at most 65,536 bytes as the database
            writes it: with a blank after each comma and colon, and numbers written out. It does not go through the
            codec.
        max_attempts: Deliveries after which a failing message becomes a dead letter. None: the queue's.
        on_duplicate: What to do if another message holds the key. "skip": add nothing; the receipt names the message
            that holds the key. "raise": raise DuplicateMessage. "replace": rewrite the message that holds the key. It
            keeps its id and enqueued_at, and takes all else from this one; its attempts are forgotten. With a delay
            this is a debounce. If a consumer holds that message, it loses the key, and this one is added.
        cost: How much of its channel's share the message takes, from 1 to 1,000,000,000, in any unit that all messages
            of the queue share: pages, tokens, kilobytes. Channels get equal sums of costs by weight. An estimate
            will do: a settlement may say what it was. In a queue that is fair by seconds, milliseconds.
        unique_for: For how long the key stays taken, up to 365 days, though its message may have ended, in whatever
            way: completed, dead, cancelled or purged. None: as long as the message lives. It counts among messages that
            have one: another message with the key and without unique_for meets living messages alone. Until the period
            is over, "skip" and "raise" find a duplicate, and the receipt or DuplicateMessage names the message that
            began the period, ended or not. "replace" rewrites that message while it waits for a consumer, and the
            period begins anew with this unique_for; once a consumer holds it or it has ended, this one is a duplicate.
            A message that outlives its period keeps the key until it ends.
        unique_from: When unique_for begins. "enqueue": when this message is sent. "completion": when it ends.
        ordering_key: 1 to 512 bytes, such as the id of a conversation or a document. Of the messages of a channel with
            one ordering key, one is out at a time, in the order in which they were added. A retry with a delay holds
            the others back; they go on when the message is completed, dead, cancelled or purged. The keys of a channel
            take turns. None: the message waits for no other one.
        coalesce: With an ordering_key and no key: add nothing while another message of the channel, kind and
            ordering_key waits for a consumer. It keeps its payload and time, and is not delivered before this
            transaction has ended, so that its handler sees what this one committed. Else this one is added, also while
            a consumer holds another.

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
        """Refuse what cannot be kept, before anything is recorded."""
        channel, kind = self.channel, self.kind
        # Two calls for each of many messages take as long as all else here.
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
        for what, name in (("key", self.key), ("ordering_key", self.ordering_key)):
            if name is not None:
                check_name(what, name)
        if not isinstance(self.coalesce, bool):
            raise InvalidArgument(f"coalesce is {self.coalesce!r:.80}; say True or False")
        if self.coalesce and (self.ordering_key is None or self.key is not None):
            raise InvalidArgument(
                f"coalesce is True, ordering_key {self.ordering_key!r:.80} and key {self.key!r:.80}; give an "
                "ordering_key, and no key"
            )

    def _check_key(self) -> None:
        """Refuse what says something of a key that is not there."""
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
    """The receipt of an enqueue: it knows the message once the transaction has committed.

    Attributes:
        channel: The channel.
        message_id: The message's id; None until the commit. For a key that stood already: the message that holds it,
            which may have ended if the key has a period (``unique_for``). None for a message that was dropped. The
            calls that take an id, such as ``queue.cancel`` and ``queue.result``, refuse None with InvalidArgument.
        created: Whether a message was added; None until the commit.
        outcome: What became of it; None until the commit. "created"; "duplicate": its key stood already; "replaced":
            the message that holds the key was rewritten; "coalesced": another message of its ordering key, message_id,
            waits in its place; "dropped": the channel was full, and its policy drops.

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
        message_id: The message. None: it was named.
        outcome: What became of it; None until the commit. "cancelled": withdrawn, it is never delivered; "leased": a
            consumer holds it; it is never delivered again, and its worker learns of it at the next heartbeat;
            "missing": done, dead, withdrawn before, or of another queue. Of several the first of "leased", "cancelled"
            and "missing" that one of them has.
        outcomes: What became of each, by id; None until the commit. Empty: nothing has the name.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> with Session(engine) as session, session.begin():
        ...     receipt = queue.cancel(session, message_id)
        >>> receipt.outcome
        'cancelled'
    """

    message_id: int | None
    outcome: CancelOutcome | None = None
    outcomes: Mapping[int, CancelOutcome] | None = None


class MessageName(NamedTuple):
    """What messages of a channel are called: by their key or their ordering key, or both."""

    channel: str
    key: str | None
    ordering_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """Messages of a channel that no consumer holds. All that is not None must be met.

    Attributes:
        channel: The channel.
        key: Their key.
        ordering_key: Their ordering key.
        kind: Their kind.
        state: Their state.
        since: They were enqueued then or later.
        until: They were enqueued before then.
    """

    channel: str
    key: str | None = None
    ordering_key: str | None = None
    kind: str | None = None
    state: UndeliveredState | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        check_name("channel", self.channel)
        check_names(key=self.key, ordering_key=self.ordering_key, kind=self.kind)
        if self.state is not None:
            check_choice("state", self.state, get_args(UndeliveredState))
        for name, time in (("since", self.since), ("until", self.until)):
            if time is not None:
                check_instant(name, time)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a function."""
        times = {
            name: None if time is None else instant_microseconds(time)
            for name, time in (("since", self.since), ("until", self.until))
        }
        return asdict(self) | times


@dataclass(slots=True, eq=False)
class PurgeReceipt:
    """The receipt of a purge.

    Attributes:
        channel: The channel.
        purged: How many messages were deleted; None until the commit.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> with Session(engine) as session, session.begin():
        ...     receipt = queue.purge(session, "customer-7")
        >>> receipt.purged
        1
    """

    channel: str
    purged: int | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The time for which a consumer holds the messages that it was given.

    Attributes:
        id: Random, never seen again.
        consumer: Who holds it.
        expires_at: When it ends unless extended, by the database's clock.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine, lease=timedelta(minutes=5))
        >>> delivery.lease.expires_at - datetime.now(UTC) > timedelta(minutes=4)
        True
        >>> delivery.lease.lost, delivery.lease.lost_for(delivery)
        (False, False)
    """

    id: int
    consumer: str
    expires_at: datetime

    @property
    def lost(self) -> bool:
        """Whether its holder knows already that it is lost. Only a worker's leases know."""
        return False

    def lost_for(self, delivery: Delivery) -> bool:  # noqa: ARG002 - for those that know
        """Return whether the holder knows that it has lost a delivery. Only the leases of a worker know."""
        return False

    def measured(self, delivery: Delivery) -> tuple[int | None, int | None]:  # noqa: ARG002 - as above
        """Return what a timed delivery has cost, and up to what its channel was charged while its handler ran.

        It is not charged any more. None: nobody measured it. Only the leases of a worker do.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> [delivery] = queue.dequeue(engine)
            >>> delivery.lease.measured(delivery)
            (None, None)
        """
        return None, None


class Once:
    """A value that is made when it is asked for, once."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def value(self) -> Any:
        """Return the value, made at the first call; several threads at once may make it more than once."""
        make = self._make
        if make is not None:
            self._value = make()
            self._make = None
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it has made."""
        return _made, (self.value(),)


def _made(value: Any) -> Once:
    return Once(lambda: value)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A message that a consumer holds under a lease.

    The holder owes it one complete, retry, release or bury before the lease ends.

    Attributes:
        message_id: The message.
        queue: Name of the queue.
        channel: Name of the channel.
        kind: Which handler it is for.
        content: The payload as it is stored.
        headers: The headers as they were enqueued; None without any, or if Python cannot read them.
        attempt: Which attempt this is, from 1; a release is not counted.
        max_attempts: After so many the message becomes a dead letter.
        enqueued_at: When it was enqueued, in UTC.
        lease: The lease that it is held under.
        deliveries: How often it was handed out, ever. With message_id and the lease's id it is the fencing token.
        row_id: Where the row stood when it was delivered.
        ordering_key: Its ordering key, or None.
        holds_slot: Whether to settle it may free a slot of a limit, its channel's or the queue's: False, it does not.
        settled: How this process has settled it ("complete", "retry", "release", "bury"), added when that was
            committed, on a Connection when it was sent.
        is_timed: Whether its queue is fair by seconds, so that a worker measures how long the handler takes.
        keeps_result: Whether its queue kept results when it was delivered, so that its completion keeps one.

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
    # Part of the value, but a dict has no hash.
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
        """The decoded payload. It is decoded when it is first asked for, so that a large one costs nothing until then.

        Raises:
            PayloadError: The content is not the codec's, or the headers are nothing that Python can read. Only this
                message is concerned: bury it, the others are fine.
        """
        decoded = self.decoded.value() if isinstance(self.decoded, Once) else self.decoded
        if isinstance(decoded, PayloadError):
            raise decoded
        return decoded


def delivery_of(fields: dict[str, Any], decoded: Any) -> Delivery:
    """Make a delivery that keeps *fields* as its own, without checks, for dequeues of many messages.

    It takes a fifth of the time: a frozen dataclass sets its fields one by one.
    """
    fields.update(decoded=decoded, settled=[])
    made = object.__new__(Delivery)
    object.__setattr__(made, "__dict__", fields)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How many messages one call of a handler gets: ``@queue.handler("embed", batch=Batch(max_messages=50))``.

    Attributes:
        max_messages: Most messages of a call, 2 to 1,000.
        max_cost: Most that the messages of a call cost together, in the unit of ``enqueue(cost=)``; a single one may
            cost more. None: any.

    Raises:
        InvalidArgument: A bad number.

    Example:
        >>> @queue.handler("embed", batch=Batch(max_messages=50, max_cost=8000))
        ... def embed(deliveries: list[Delivery]) -> None:
        ...     print(deliveries[0].channel, [delivery.payload for delivery in deliveries])
        >>> receipts = queue.enqueue_many(
        ...     engine, [Enqueue(channel="customer-7", payload=text, kind="embed") for text in ("one", "two")]
        ... )
        >>> Worker(engine, queue, concurrency=1).run(drain=True)
        customer-7 ['one', 'two']
    """

    max_messages: int
    max_cost: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_count("max_messages", self.max_messages, 2, 1000)
        if self.max_cost is not None:
            check_count("max_cost", self.max_cost, 1, 10**15)


class Deliveries(list[Delivery]):
    """The deliveries of one dequeue, in the order of their start tags.

    Attributes:
        due_in: How long until something else may be due: zero, try again; None, nothing is scheduled. A hint, never a
            promise.

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
"""The header of the message that follows a group: its id and counts."""


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """The members of a group when it was finished. Its follow-up has them as ``context.after_group``.

    Attributes:
        id: The group.
        total: How many members it had, those that members added included.
        done: How many were completed.
        failed: How many became dead letters.
        cancelled: How many were cancelled or purged.

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
    """The counts of a group.

    Attributes:
        pending: How many members have not ended: ready, scheduled, out, or to be tried again.
        created_at: When the transaction that made it sent it.
        finished_at: When its follow-up was enqueued, or without one when it was seen that all members have ended; None:
            it is open.
        message_id: The follow-up; None before, and without one.
        problem: Why its follow-up could not be enqueued at the last try; it is tried again.

    Example:
        >>> with Session(engine) as session, session.begin():
        ...     with queue.group(session) as group:
        ...         receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=page) for page in (1, 2)])
        >>> queue.complete(engine, queue.dequeue(engine, limit=1))
        >>> status = queue.groups.status(engine, group.id)
        >>> status.done, status.pending, status.finished_at
        (1, 1, None)
    """

    pending: int
    created_at: datetime
    finished_at: datetime | None
    message_id: int | None
    problem: str | None


class GroupCancellation(NamedTuple):
    """The result of cancelling a group.

    Attributes:
        cancelled: How many members are gone.
        leased: How many a consumer holds. They are gone unless it completes them.

    Example:
        >>> with Session(engine) as session, session.begin():
        ...     with queue.group(session) as group:
        ...         receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=1)])
        >>> queue.groups.cancel(engine, group.id)
        GroupCancellation(cancelled=1, leased=0)
    """

    cancelled: int
    leased: int


def checked_group_id(group_id: object) -> UUID:
    """Return the id of a group, given as a UUID or as its text.

    Raises:
        InvalidArgument: It is none.
    """
    if isinstance(group_id, UUID):
        return group_id
    if isinstance(group_id, str):
        try:
            return UUID(group_id)
        except ValueError:
            pass
    raise InvalidArgument(f"group_id is {group_id!r:.80}; give the id of a group, a UUID")


def group_of_headers(headers: Mapping[str, Any] | None) -> UUID | None:
    """Return the group whose member a message is, by its headers."""
    try:
        return checked_group_id((headers or {}).get(GROUP_HEADER))
    except InvalidArgument:
        return None


def counts_of_headers(headers: Mapping[str, Any] | None) -> GroupCounts | None:
    """Return the counts of the group that a message follows, by its headers."""
    found: Any = (headers or {}).get(AFTER_GROUP_HEADER)
    try:
        counts = [int(found[name]) for name in ("total", "done", "failed", "cancelled")]
        return GroupCounts(checked_group_id(found["id"]), *counts)
    except (InvalidArgument, LookupError, TypeError, ValueError):
        return None
