"""Mixins of queues: their configuration, their gates, the state of their dispatchers, and the epoch of the server."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime, timedelta  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    false,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.relationships import Related
from sqlalchemy_fairqueue.models.types import Duration, Instant, Xid, Xid8, Xid8Array

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement


class QueueConfigMixin(FairqueueMixin):
    """A configured queue: the policy of channels that are made from now on, and the settings of the queue itself.

    ``defaults`` has the fields of a policy by the names of the columns of :class:`ChannelStateMixin`,
    ``rate_interval`` in microseconds; None: new channels take the policy that their first enqueue brings.
    ``max_concurrency`` and the rate are those of the whole queue; ``limits`` are the names of the shared limits
    that it draws from. ``history_retention`` None is 30 days. ``dead_letter_retention`` None is for ever;
    ``dead_letter_retention_by_kind`` has those of single kinds, in microseconds. ``default_plan`` is the plan that
    new channels follow; ``plans``: whether the queue has, or had, any. ``result_retention`` None: results of handlers
    are not kept.

    Attributes:
        channels: The queue's channels.
        state: What the dispatcher of the queue knows; None before the first delivery and the first limit.
    """

    __fairqueue_verbs__ = "use queue.configure(session, ...)"
    __tablename__ = "fq_queue"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {
        "channels": Related("fq_channel", own="name", other="queue", many=True),
        "state": Related("fq_queue_state", own="name", other="queue"),
    }
    if TYPE_CHECKING:
        channels: Mapped[list[Any]]
        state: Mapped[Any]

    name: Mapped[str] = mapped_column(Text(collation="C"))
    defaults: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    max_concurrency: Mapped[int | None] = mapped_column(Integer)
    rate_interval: Mapped[timedelta] = mapped_column(Duration, server_default=text("0"))
    rate_burst: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    limits: Mapped[list[str] | None] = mapped_column(ARRAY(Text(collation="C")))
    paused_at: Mapped[datetime | None] = mapped_column(Instant)
    history: Mapped[bool] = mapped_column(Boolean, server_default=false())
    fair_by: Mapped[str] = mapped_column(Text, server_default="messages")
    history_retention: Mapped[timedelta | None] = mapped_column(Duration)
    dead_letter_retention: Mapped[timedelta | None] = mapped_column(Duration)
    dead_letter_retention_by_kind: Mapped[dict[str, int] | None] = mapped_column(JSONB)
    forget_channels_after: Mapped[timedelta | None] = mapped_column(Duration, server_default=text("2592000000000"))
    default_plan: Mapped[str | None] = mapped_column(Text(collation="C"))
    plans: Mapped[bool] = mapped_column(Boolean, server_default=false())
    result_retention: Mapped[timedelta | None] = mapped_column(Duration)

    @hybrid_property
    def is_paused(self) -> bool:
        """Whether no channel of the queue is served until it is resumed."""
        return self.paused_at is not None

    @is_paused.inplace.expression
    @classmethod
    def _is_paused_expression(cls) -> ColumnElement[bool]:
        return cls.paused_at.is_not(None)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("name", name=conv("fq_queue_pkey")),
            CheckConstraint(
                "octet_length(name) between 1 and 512 and octet_length(default_plan) between 1 and 512",
                name=conv("fq_queue_names_check"),
            ),
            CheckConstraint(
                "paused_at between 0 and 253402300799999999 and history_retention between 1 and 3153600000000000 "
                "and forget_channels_after between 1 and 3153600000000000",
                name=conv("fq_queue_times_check"),
            ),
            CheckConstraint(
                "jsonb_typeof(defaults) = 'object' and octet_length(defaults::text) <= 65536",
                name=conv("fq_queue_defaults_check"),
            ),
            CheckConstraint("fair_by in ('messages', 'cost', 'seconds')", name=conv("fq_queue_fair_by_check")),
            CheckConstraint(
                "max_concurrency >= 1 and rate_interval between 0 and 31536000000000 "
                "and rate_burst between 1 and 1000000",
                name=conv("fq_queue_limits_check"),
            ),
            CheckConstraint("result_retention between 1 and 3153600000000000", name=conv("fq_queue_results_check")),
            CheckConstraint("cardinality(limits) between 1 and 16", name=conv("fq_queue_shared_limits_check")),
            CheckConstraint(
                "dead_letter_retention between 1 and 3153600000000000 "
                "and jsonb_typeof(dead_letter_retention_by_kind) = 'object'",
                name=conv("fq_queue_dead_letters_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )


class GateMixin(FairqueueMixin):
    """A part of the gate of a queue, which a dequeue locks and a change of the queue's limit locks whole."""

    __fairqueue_verbs__ = "the dispatcher makes it; queue.configure(session, max_concurrency=...) writes it"
    __tablename__ = "fq_gate"

    queue: Mapped[str] = mapped_column(Text(collation="C"))
    part: Mapped[int] = mapped_column(SmallInteger, autoincrement=False)
    limited: Mapped[bool] = mapped_column(Boolean, server_default=text("false"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("queue", "part", name=conv("fq_gate_pkey")),
            CheckConstraint(
                "octet_length(queue) between 1 and 512 and part between -1 and 63", name=conv("fq_gate_check")
            ),
            {"schema": cls.__fairqueue_schema__},
        )


class EpochMixin(FairqueueMixin):
    """The history that the server writes, as a random number: gone after a crash, a failover, a restore of files."""

    __fairqueue_verbs__ = "the first queue.dequeue(engine, ...) after a crash makes it"
    __tablename__ = "fq_epoch"

    one: Mapped[bool] = mapped_column(Boolean, server_default=true())
    value: Mapped[int] = mapped_column(BigInteger)
    written_by: Mapped[int | None] = mapped_column(Xid)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("one", name=conv("fq_epoch_pkey")),
            CheckConstraint("one", name=conv("fq_epoch_check")),
            {"schema": cls.__fairqueue_schema__, "prefixes": ["UNLOGGED"]},
        )


class QueueStateMixin(FairqueueMixin):
    """What the dispatcher of a queue knows, and the concurrency of a queue that has a limit.

    All signals are heard but those of transactions from ``heard_below`` on and in ``heard_open``. The ready order
    begins at ``ready_floor`` and ``ready_channel``, since ``still_since``. No channel is due before ``due_floor``, and
    no lease ended before ``lease_floor`` when all of them were looked at last, at ``swept_at``. Since ``held_since``
    all that is due is locked. The row is as it was ``noted_at``.

    One row a queue is the key; the table has no unique index, by design.

    Attributes:
        queue_config: The queue's configuration.
    """

    __fairqueue_verbs__ = "the dispatcher writes it; the limit is set by queue.configure(session, max_concurrency=...)"
    __tablename__ = "fq_queue_state"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {
        "queue_config": Related("fq_queue", own="queue", other="name", foreign_key_here=True)
    }
    if TYPE_CHECKING:
        queue_config: Mapped[Any]

    queue: Mapped[str] = mapped_column(Text(collation="C"))
    row_version: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    max_concurrency: Mapped[int | None] = mapped_column(Integer)
    current_concurrency: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    rate_interval: Mapped[timedelta] = mapped_column(Duration, server_default=text("0"))
    rate_burst: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    rate_at: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))
    heard_below: Mapped[int] = mapped_column(Xid8, server_default=text("'0'"))
    heard_open: Mapped[list[int]] = mapped_column(Xid8Array, server_default=text("'{}'"))
    ready_floor: Mapped[int] = mapped_column(BigInteger, server_default=text("'-9223372036854775808'"))
    ready_channel: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    still_since: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))
    due_floor: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))
    lease_floor: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))
    swept_at: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))
    held_since: Mapped[datetime | None] = mapped_column(Instant)
    noted_at: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))

    @declared_attr.directive
    def __mapper_args__(cls) -> dict[str, Any]:
        """The key of the mapping; the table itself has none."""
        return {"primary_key": [cls.__table__.c.queue]}

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            Index(conv("fq_queue_state_newest_ix"), "queue", "row_version"),
            CheckConstraint(
                "row_version between 0 and 4611686018427387903 and max_concurrency >= 1 "
                "and current_concurrency < 2000000000 and rate_interval between 0 and 31536000000000 "
                "and rate_burst between 1 and 1000000 and rate_at between 0 and 253402300799999999",
                name=conv("fq_queue_state_values_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
