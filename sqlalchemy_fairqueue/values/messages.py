"""Messages to enqueue, and the receipts of enqueues, cancels and purges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.values.checks import (
    check_choice,
    check_count,
    check_duration,
    check_instant,
    check_name,
    is_plain_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

OnDuplicate = Literal["skip", "raise", "replace"]
UniqueFrom = Literal["enqueue", "completion"]
EnqueueOutcome = Literal["created", "duplicate", "replaced", "dropped"]
CancelOutcome = Literal["cancelled", "leased", "missing"]

FairBy = Literal["messages", "cost", "seconds"]

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
        if self.key is not None or self.ordering_key is not None:
            self._check_names()
        if self.on_duplicate != "skip" or self.unique_for is not None or self.unique_from != "enqueue":
            self._check_key()

    def _check_names(self) -> None:
        for what, name in (("key", self.key), ("ordering_key", self.ordering_key)):
            if name is not None:
                check_name(what, name)

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
            the message that holds the key was rewritten; "dropped": the channel was full, and its policy drops.

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
        message_id: The message.
        outcome: What became of it; None until the commit. "cancelled": withdrawn, it is never delivered; "leased": a
            consumer holds it; it is never delivered again, and its worker learns of it at the next heartbeat;
            "missing": done, dead, withdrawn before, or of another queue.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> with Session(engine) as session, session.begin():
        ...     receipt = queue.cancel(session, message_id)
        >>> receipt.outcome
        'cancelled'
    """

    message_id: int
    outcome: CancelOutcome | None = None


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
