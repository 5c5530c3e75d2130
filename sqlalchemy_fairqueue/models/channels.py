"""Mixins of what stands still: configured queues, channels and their state."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import timedelta  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.refusal import ReadOnly
from sqlalchemy_fairqueue.models.relations import Related, relate
from sqlalchemy_fairqueue.models.types import Duration

if TYPE_CHECKING:
    from sqlalchemy import FromClause
    from sqlalchemy.orm import Mapper


class FairqueueMixin(ReadOnly):
    """What the mixins share.

    The relationships of a mixin exist where its partner's mixin is mapped too, on the same Base and in the same schema.

    Attributes:
        __fairqueue_schema__: The schema that fairqueue is installed in. None is the schema of the Base's MetaData, and
            without one the connection's default schema.
    """

    __fairqueue_schema__: ClassVar[str | None] = None
    __fairqueue_related__: ClassVar[dict[str, Related]] = {}
    __table__: ClassVar[FromClause]


@event.listens_for(FairqueueMixin, "after_mapper_constructed", propagate=True)
def _relate(mapper: Mapper[Any], _class: type[Any]) -> None:
    relate(mapper)


class QueueConfigMixin(FairqueueMixin):
    """A configured queue: the policy that channels made from now on start with.

    Attributes:
        channels: The queue's channels.
    """

    __fairqueue_verbs__ = "use queue.configure(session, policy)"
    __tablename__ = "fq_queue"
    __fairqueue_related__: ClassVar = {"channels": Related("fq_channel", own="name", other="queue", many=True)}
    if TYPE_CHECKING:
        channels: Mapped[list[Any]]

    name: Mapped[str] = mapped_column(Text(collation="C"))
    max_concurrency: Mapped[int | None] = mapped_column(Integer)
    release_interval: Mapped[timedelta] = mapped_column(Duration, server_default=text("0"))
    release_burst: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    weight: Mapped[int] = mapped_column(Integer, server_default=text("1"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that version 1 gives them."""
        return (
            PrimaryKeyConstraint("name", name=conv("fq_queue_pkey")),
            CheckConstraint(
                "(max_concurrency is null or max_concurrency >= 1) "
                "and release_interval >= 0 and release_burst >= 1 and weight >= 1",
                name=conv("fq_queue_policy_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )


class ChannelMixin(FairqueueMixin):
    """A channel: one tenant's line in a queue.

    Attributes:
        state: What the dispatcher knows of the channel: its policy, its place in the line, its count.
        queue_config: The configuration of the channel's queue, or None where nobody configured it.
        messages: The channel's messages, leased ones too.
        dead_letters: The channel's messages that will not be tried again.
    """

    __fairqueue_verbs__ = (
        "use queue.enqueue(session, channel=...) or queue.configure_channel(session, ...), which make it"
    )
    __tablename__ = "fq_channel"
    __fairqueue_related__: ClassVar = {
        "state": Related("fq_channel_state", own="id", other="channel_id"),
        "queue_config": Related("fq_queue", own="queue", other="name", named_here=True),
        "messages": Related("fq_message", own="id", other="channel_id", many=True),
        "dead_letters": Related("fq_dead_letter", own="id", other="channel_id", many=True),
    }
    if TYPE_CHECKING:
        state: Mapped[Any]
        queue_config: Mapped[Any]
        messages: Mapped[list[Any]]
        dead_letters: Mapped[list[Any]]

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    name: Mapped[str] = mapped_column(Text(collation="C"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that version 1 gives them."""
        return (
            PrimaryKeyConstraint("id", name=conv("fq_channel_pkey")),
            UniqueConstraint("queue", "name", name=conv("fq_channel_queue_name_key")),
            CheckConstraint("octet_length(name) between 1 and 512", name=conv("fq_channel_name_check")),
            CheckConstraint("octet_length(queue) between 1 and 512", name=conv("fq_channel_queue_check")),
            {"schema": cls.__fairqueue_schema__},
        )


class ChannelStateMixin(FairqueueMixin):
    """The dispatcher's view of a channel. One row a channel is the key; the table has no unique index, by design.

    The times are microseconds since the epoch and places in a line, which may be negative; head and next are None while
    the channel has nothing that the dispatcher knows of.

    Attributes:
        channel: The channel.
    """

    __fairqueue_verbs__ = "the dispatcher writes it; a policy is set by queue.configure_channel(session, ...)"
    __tablename__ = "fq_channel_state"
    __fairqueue_related__: ClassVar = {"channel": Related("fq_channel", own="channel_id", other="id", named_here=True)}
    if TYPE_CHECKING:
        channel: Mapped[Any]

    channel_id: Mapped[int] = mapped_column(BigInteger)
    turn: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    max_concurrency: Mapped[int | None] = mapped_column(Integer)
    release_interval: Mapped[timedelta] = mapped_column(Duration, server_default=text("0"))
    release_burst: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    weight: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    current_concurrency: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    head_dequeue_at: Mapped[int | None] = mapped_column(BigInteger)
    head_message_id: Mapped[int | None] = mapped_column(BigInteger)
    last_dequeue_at: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    next_dequeue_at: Mapped[int | None] = mapped_column(BigInteger)
    release_at: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    credit: Mapped[int] = mapped_column(Integer, server_default=text("0"))

    @declared_attr.directive
    def __mapper_args__(cls) -> dict[str, Any]:
        """The key of the mapping; the table itself has none."""
        return {"primary_key": [cls.__table__.c.channel_id]}

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Indexes under the names that version 1 gives them."""
        return (
            Index(conv("fq_channel_state_newest_ix"), "channel_id", "turn"),
            Index(
                conv("fq_channel_state_ready_ix"),
                "queue",
                "next_dequeue_at",
                "channel_id",
                postgresql_where=text(
                    "next_dequeue_at is not null and (max_concurrency is null or current_concurrency < max_concurrency)"
                ),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
