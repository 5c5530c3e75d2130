"""Mixins of channels and of their state."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime, timedelta  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.relationships import Related
from sqlalchemy_fairqueue.models.types import Duration, Instant, Xid8

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement


class ChannelMixin(FairqueueMixin):
    """A channel: the messages of one tenant in a queue.

    Attributes:
        state: The dispatcher's state of the channel: policy, start tag, concurrency.
        queue_config: The configuration of the channel's queue, or None if it was never configured.
        messages: The channel's messages, leased ones too.
        dead_letters: The channel's messages that will not be tried again.
    """

    __fairqueue_verbs__ = (
        "use queue.enqueue(session, channel=...) or queue.configure_channel(session, ...), which make it"
    )
    __tablename__ = "fq_channel"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {
        "state": Related("fq_channel_state", own="id", other="channel_id"),
        "queue_config": Related("fq_queue", own="queue", other="name", foreign_key_here=True),
        "messages": Related("fq_message", own="id", other="channel_id", many=True),
        "dead_letters": Related("fq_dead_letter", own="id", other="channel_id", many=True),
    }
    if TYPE_CHECKING:
        state: Mapped[Any]
        queue_config: Mapped[Any]
        messages: Mapped[list[Any]]
        dead_letters: Mapped[list[Any]]

    @hybrid_property
    def is_paused(self) -> bool:
        """Whether the channel itself is paused; its queue may be as well."""
        paused: bool = self.state.is_paused
        return paused

    @is_paused.inplace.expression
    @classmethod
    def _is_paused_expression(cls) -> ColumnElement[bool]:
        state: Any = cls.state
        paused: ColumnElement[bool] = state.has(state.property.mapper.class_.is_paused)
        return paused

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    name: Mapped[str] = mapped_column(Text(collation="C"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("id", name=conv("fq_channel_pkey")),
            UniqueConstraint("queue", "name", name=conv("fq_channel_queue_name_key")),
            CheckConstraint("octet_length(name) between 1 and 512", name=conv("fq_channel_name_check")),
            CheckConstraint("octet_length(queue) between 1 and 512", name=conv("fq_channel_queue_check")),
            {"schema": cls.__fairqueue_schema__},
        )


class ChannelStateMixin(FairqueueMixin):
    """The dispatcher's state of a channel. One row a channel is the key; the table has no unique index, by design.

    Times are microseconds since the epoch; they order the turns, and may be negative. Head and next are None while the
    dispatcher knows of no message in the channel. ``backlog`` is what the dispatcher has heard of: signals that are not
    heard yet add to it. ``problem`` tells why a dequeue has paused the channel.

    Attributes:
        channel: The channel.
    """

    __fairqueue_verbs__ = "the dispatcher writes it; a policy is set by queue.configure_channel(session, ...)"
    __tablename__ = "fq_channel_state"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {
        "channel": Related("fq_channel", own="channel_id", other="id", foreign_key_here=True)
    }
    if TYPE_CHECKING:
        channel: Mapped[Any]

    channel_id: Mapped[int] = mapped_column(BigInteger)
    row_version: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    max_concurrency: Mapped[int | None] = mapped_column(Integer)
    rate_interval: Mapped[timedelta] = mapped_column(Duration, server_default=text("0"))
    rate_burst: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    weight: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    current_concurrency: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    head_dequeue_at: Mapped[int | None] = mapped_column(BigInteger)
    head_message_id: Mapped[int | None] = mapped_column(BigInteger)
    last_dequeue_at: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    ready_tag: Mapped[int | None] = mapped_column(BigInteger)
    due_at: Mapped[int | None] = mapped_column(BigInteger)
    rate_at: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    tag: Mapped[int | None] = mapped_column(BigInteger)
    tag_rest: Mapped[int | None] = mapped_column(BigInteger)
    problem: Mapped[str | None] = mapped_column(Text)
    paused_at: Mapped[datetime | None] = mapped_column(Instant)
    max_backlog: Mapped[int | None] = mapped_column(Integer)
    on_full: Mapped[str] = mapped_column(Text(collation="C"), server_default=text("'raise'"))
    priority_aging: Mapped[timedelta | None] = mapped_column(Duration)
    max_payload_bytes: Mapped[int | None] = mapped_column(Integer)
    configured: Mapped[bool] = mapped_column(Boolean, server_default=false())
    used_at: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    forget_xid: Mapped[int | None] = mapped_column(Xid8)
    backlog: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    dropped: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    heard_id: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))

    @hybrid_property
    def is_paused(self) -> bool:
        """Whether the channel is not served until it is resumed."""
        return self.paused_at is not None

    @is_paused.inplace.expression
    @classmethod
    def _is_paused_expression(cls) -> ColumnElement[bool]:
        return cls.paused_at.is_not(None)

    @declared_attr.directive
    def __mapper_args__(cls) -> dict[str, Any]:
        """The key of the mapping; the table itself has none."""
        return {"primary_key": [cls.__table__.c.channel_id]}

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Indexes under the names that the installation gives them."""
        return (
            Index(conv("fq_channel_state_newest_ix"), "channel_id", "row_version"),
            Index(
                conv("fq_channel_state_ready_ix"),
                "queue",
                "ready_tag",
                "channel_id",
                postgresql_where=text("ready_tag is not null"),
            ),
            Index(
                conv("fq_channel_state_due_ix"),
                "queue",
                "due_at",
                "channel_id",
                postgresql_where=text("due_at is not null"),
            ),
            Index(
                conv("fq_channel_state_tag_ix"),
                "queue",
                "tag",
                postgresql_where=text("tag is not null and ready_tag is null"),
            ),
            Index(
                conv("fq_channel_state_held_back_ix"),
                "queue",
                "channel_id",
                postgresql_where=text("head_message_id is not null and ready_tag is null and due_at is null"),
            ),
            Index(
                conv("fq_channel_state_forget_ix"),
                "queue",
                "channel_id",
                postgresql_where=text("forget_xid is not null"),
            ),
            Index(conv("fq_channel_state_dropped_ix"), "queue", "channel_id", postgresql_where=text("dropped > 0")),
            {"schema": cls.__fairqueue_schema__},
        )


class RoundMixin(FairqueueMixin):
    """A duty of the housekeeping, whose lock lets one transaction do it at a time: 'fold', 'forget' or 'history'.

    ``waiting`` are transactions that ran when the round in ``snapshot`` began.
    """

    __fairqueue_verbs__ = "housekeeping writes it, after queue.configure(session, forget_channels_after=...)"
    __tablename__ = "fq_round"

    duty: Mapped[str] = mapped_column(Text(collation="C"))
    snapshot: Mapped[str | None] = mapped_column(Text)
    waiting: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("duty", name=conv("fq_round_pkey")),
            CheckConstraint("duty in ('fold', 'forget', 'history')", name=conv("fq_round_check")),
            {"schema": cls.__fairqueue_schema__},
        )
