"""Mixins of messages, signals, leases and dead letters."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID  # noqa: TC003 - SQLAlchemy reads the annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    Uuid,
    case,
    cast,
    false,
    func,
    literal_column,
    text,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.codecs import JsonCodec
from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.relationships import Related
from sqlalchemy_fairqueue.models.types import Instant, Xid8
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

_JSON = JsonCodec()

TO_CHANNEL = {"channel": Related("fq_channel", own="channel_id", other="id", foreign_key_here=True)}


class ContentMixin(FairqueueMixin):
    """A message's content, whether the message is waiting or dead.

    Attributes:
        channel: The channel.
    """

    __fairqueue_related__: ClassVar[dict[str, Related]] = TO_CHANNEL
    if TYPE_CHECKING:
        channel: Mapped[Any]

    channel_id: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(Text)
    content: Mapped[bytes] = mapped_column(LargeBinary)
    headers: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    key: Mapped[str | None] = mapped_column(Text(collation="C"))
    priority: Mapped[int | None] = mapped_column(Integer)
    cost: Mapped[int | None] = mapped_column(Integer)
    enqueued_at: Mapped[datetime] = mapped_column(Instant)

    @hybrid_property
    def payload(self) -> Any:
        """The content read as JSON; in a query ``convert_from(content, 'UTF8')::jsonb``, taken apart like any JSONB.

        Only for messages whose codec writes JSON: a query that reads the payload of another fails.

        Raises:
            PayloadError: The content is not JSON.
        """
        return _JSON.decode(self.content)

    @payload.inplace.expression
    @classmethod
    def _payload_expression(cls) -> ColumnElement[Any]:
        return cast(func.convert_from(cls.content, literal_column("'UTF8'")), JSONB)


class MessageMixin(ContentMixin):
    """A unit of work, from enqueue to completion.

    ``dequeue_at`` orders the messages of the channel. It is when the message is due, in microseconds since the epoch.
    Of a message with a ``priority`` that is due, it is minus the priority, or a time that is earlier by what its
    channel's policy makes of the priority. ``returned_at`` is since when it is ready again. ``delivered_at`` is kept
    where the queue records its history. ``group_id`` is the group that it is a member of. ``key_outlives`` is true
    where a period of its key is counted from its end. A message that is ``cancelled`` was cancelled while a consumer
    had leased it.

    Attributes:
        lease: The lease under which a consumer holds the message, or None.
    """

    __fairqueue_verbs__ = (
        "use queue.enqueue(session, ...) to add one, queue.cancel(session, message_id) to withdraw one"
    )
    __tablename__ = "fq_message"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {
        **TO_CHANNEL,
        "lease": Related("fq_lease", own="lease_id", other="id", foreign_key_here=True),
    }
    if TYPE_CHECKING:
        lease: Mapped[Any]

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    dequeue_at: Mapped[int] = mapped_column(BigInteger)
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    max_attempts: Mapped[int] = mapped_column(Integer)
    deliveries: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    lease_id: Mapped[int | None] = mapped_column(BigInteger)
    slots: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    error: Mapped[str | None] = mapped_column(Text)
    delivered_at: Mapped[datetime | None] = mapped_column(Instant)
    returned_at: Mapped[datetime | None] = mapped_column(Instant)
    cancelled: Mapped[bool] = mapped_column(Boolean, server_default=false())
    group_id: Mapped[UUID | None] = mapped_column(Uuid)
    key_outlives: Mapped[bool | None] = mapped_column()

    @hybrid_property
    def due_at(self) -> datetime | None:
        """The instant before which the message is not delivered; None for one that is due and has a priority."""
        return instant(self.dequeue_at) if self.dequeue_at >= 0 else None

    @due_at.inplace.expression
    @classmethod
    def _due_at_expression(cls) -> ColumnElement[datetime | None]:
        return type_coerce(case((cls.dequeue_at >= 0, cls.dequeue_at)), Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        leased = text("lease_id is not null")
        return (
            PrimaryKeyConstraint("id", name=conv("fq_message_pkey")),
            Index(
                conv("fq_message_ready_ix"), "channel_id", "dequeue_at", "id", postgresql_where=text("lease_id is null")
            ),
            Index(conv("fq_message_lease_ix"), "lease_id", postgresql_where=leased),
            Index(conv("fq_message_group_ix"), "group_id", postgresql_where=text("group_id is not null")),
            Index(
                conv("fq_message_key"),
                "channel_id",
                "key",
                unique=True,
                postgresql_where=text("key is not null"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )


class DeadLetterMixin(ContentMixin):
    """A message that will not be tried again, whole, with the reason."""

    __fairqueue_verbs__ = "use queue.bury(session, delivery, reason=...) to make one"
    __tablename__ = "fq_dead_letter"

    message_id: Mapped[int] = mapped_column(BigInteger, autoincrement=False)
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    attempts: Mapped[int] = mapped_column(Integer)
    max_attempts: Mapped[int] = mapped_column(Integer)
    deliveries: Mapped[int] = mapped_column(Integer)
    reason: Mapped[str] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
    died_at: Mapped[datetime] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("message_id", name=conv("fq_dead_letter_pkey")),
            Index(conv("fq_dead_letter_channel_ix"), "channel_id", "died_at", "message_id"),
            Index(conv("fq_dead_letter_kind_ix"), "queue", "kind", "died_at", "message_id"),
            Index(conv("fq_dead_letter_died_ix"), "queue", "died_at"),
            CheckConstraint(
                "octet_length(content) <= 268435456 and octet_length(kind) between 1 and 512"
                " and octet_length(key) between 1 and 512 and octet_length(reason) <= 1048576"
                " and octet_length(error) <= 1048576",
                name=conv("fq_dead_letter_content_check"),
            ),
            CheckConstraint("octet_length(headers::text) <= 65536", name=conv("fq_dead_letter_headers_check")),
            CheckConstraint(
                "enqueued_at between 0 and 253402300799999999 and died_at between 0 and 253402300799999999",
                name=conv("fq_dead_letter_times_check"),
            ),
            CheckConstraint(
                "message_id > 0 and attempts >= 0 and max_attempts >= 1 and deliveries >= 0",
                name=conv("fq_dead_letter_counts_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )


class PromotionMixin(FairqueueMixin):
    """A message with a priority that is due later, and when. One row a message and time is the key; the table has none.

    A row outlives a message that ends before, until it is due.
    """

    __fairqueue_verbs__ = "queue.enqueue(session, ..., priority=..., at=...) and a retry with a delay make it"
    __tablename__ = "fq_promotion"

    queue: Mapped[str] = mapped_column(Text(collation="C"))
    due_at: Mapped[datetime] = mapped_column(Instant)
    message_id: Mapped[int] = mapped_column(BigInteger)

    @declared_attr.directive
    def __mapper_args__(cls) -> dict[str, Any]:
        """The key of the mapping; the table itself has none."""
        columns = cls.__table__.c
        return {"primary_key": [columns.queue, columns.due_at, columns.message_id]}

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Indexes under the names that the installation gives them."""
        return (
            Index(conv("fq_promotion_due_ix"), "queue", "due_at", "message_id"),
            {"schema": cls.__fairqueue_schema__},
        )


class SignalMixin(FairqueueMixin):
    """A note of the transaction ``xid`` for the dispatcher, until it is heard.

    Attributes:
        channel: The channel.
    """

    __fairqueue_verbs__ = "the verbs of a queue insert signals, and the dispatcher deletes them"
    __tablename__ = "fq_signal"
    __fairqueue_related__: ClassVar[dict[str, Related]] = TO_CHANNEL
    if TYPE_CHECKING:
        channel: Mapped[Any]

    queue: Mapped[str] = mapped_column(Text(collation="C"))
    xid: Mapped[int] = mapped_column(Xid8, server_default=text("pg_current_xact_id()"))
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    channel_id: Mapped[int] = mapped_column(BigInteger)
    dequeue_at: Mapped[int | None] = mapped_column(BigInteger)
    message_id: Mapped[int | None] = mapped_column(BigInteger)
    freed: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    added: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    queue_freed: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    dropped: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    cost: Mapped[int | None] = mapped_column(BigInteger)
    bounded: Mapped[bool] = mapped_column(Boolean, server_default=false())

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("queue", "xid", "id", name=conv("fq_signal_pkey")),
            Index(conv("fq_signal_bounded_ix"), "channel_id", "id", postgresql_where=text("bounded")),
            {"schema": cls.__fairqueue_schema__},
        )


class LeaseMixin(FairqueueMixin):
    """A consumer's lease of messages, until ``expires_at``; ``epoch`` is the value of :class:`EpochMixin` then.

    Attributes:
        messages: The messages held under the lease.
    """

    __fairqueue_verbs__ = "queue.dequeue(engine, ...) makes leases, queue.extend(engine, delivery) extends them"
    __tablename__ = "fq_lease"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {
        "messages": Related("fq_message", own="id", other="lease_id", many=True)
    }
    if TYPE_CHECKING:
        messages: Mapped[list[Any]]

    id: Mapped[int] = mapped_column(BigInteger, autoincrement=False)
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    consumer: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(Instant)
    waiting_until: Mapped[datetime | None] = mapped_column(Instant)
    epoch: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("id", name=conv("fq_lease_pkey")),
            Index(conv("fq_lease_expires_ix"), "queue", "expires_at", "id"),
            Index(
                conv("fq_lease_waiting_ix"),
                "queue",
                "waiting_until",
                postgresql_where=text("waiting_until is not null"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
