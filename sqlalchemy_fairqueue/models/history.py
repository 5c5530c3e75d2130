"""Mixins of the history: finished attempts of the queues that record them, and the record of pruned attempts."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime, timedelta  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import TYPE_CHECKING, Any
from uuid import UUID  # noqa: TC003 - SQLAlchemy reads the annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    Uuid,
    text,
    type_coerce,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.types import Duration, Instant, Xid8

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement


def _between(earlier: Any, later: Any) -> ColumnElement[timedelta]:
    return type_coerce(type_coerce(later, BigInteger) - type_coerce(earlier, BigInteger), Duration)


class HistoryMixin(FairqueueMixin):
    """An attempt that has ended.

    A queue records its attempts after ``queue.configure(session, history=True)``, and whole days of them are pruned.
    The table is partitioned by the day of ``finished_at``: a query with limits on it reads those days only. Ids commit
    out of order: a reader that follows the history continues after the last (recorded_xid, id), and stays below the
    transactions that are still open (``pg_snapshot_xmin``).

    ``outcome`` is "completed", "retried", "released", "buried", "expired" (its lease ended) or "cancelled".
    ``cost`` is what its consumer said that it cost, else what the channel was charged when it began.
    ``group_id`` is the group of its message.
    """

    __fairqueue_verbs__ = "attempts are recorded after queue.configure(session, history=True)"
    __tablename__ = "fq_history"

    id: Mapped[int] = mapped_column(BigInteger, autoincrement=False)
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    channel_id: Mapped[int] = mapped_column(BigInteger)
    channel: Mapped[str] = mapped_column(Text(collation="C"))
    message_id: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(Text)
    consumer: Mapped[str | None] = mapped_column(Text)
    attempt: Mapped[int] = mapped_column(Integer)
    enqueued_at: Mapped[datetime] = mapped_column(Instant)
    ready_at: Mapped[datetime] = mapped_column(Instant)
    started_at: Mapped[datetime] = mapped_column(Instant)
    finished_at: Mapped[datetime] = mapped_column(Instant)
    outcome: Mapped[str] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
    recorded_xid: Mapped[int] = mapped_column(Xid8, server_default=text("pg_current_xact_id()"))
    cost: Mapped[int] = mapped_column(BigInteger, server_default=text("1"))
    group_id: Mapped[UUID | None] = mapped_column(Uuid)

    @hybrid_property
    def wait(self) -> timedelta:
        """The time for which the message was ready before the attempt began."""
        return self.started_at - self.ready_at

    @wait.inplace.expression
    @classmethod
    def _wait_expression(cls) -> ColumnElement[timedelta]:
        return _between(cls.ready_at, cls.started_at)

    @hybrid_property
    def duration(self) -> timedelta:
        """The duration of the attempt."""
        return self.finished_at - self.started_at

    @duration.inplace.expression
    @classmethod
    def _duration_expression(cls) -> ColumnElement[timedelta]:
        return _between(cls.started_at, cls.finished_at)

    @declared_attr.directive
    def __mapper_args__(cls) -> dict[str, Any]:
        """The key of the mapping; the table itself has none."""
        return {"primary_key": [cls.__table__.c.id]}

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            CheckConstraint(
                "outcome in ('completed', 'retried', 'released', 'buried', 'expired', 'cancelled')",
                name=conv("fq_history_outcome_check"),
            ),
            Index(conv("fq_history_recorded_ix"), "recorded_xid", "id"),
            Index(conv("fq_history_id_ix"), "id", postgresql_using="brin"),
            Index(
                conv("fq_history_undone_ix"),
                "message_id",
                postgresql_where=text("outcome <> 'completed'"),
            ),
            {"schema": cls.__fairqueue_schema__, "postgresql_partition_by": "range (finished_at)"},
        )


class PrunedHistoryMixin(FairqueueMixin):
    """Record of attempts that housekeeping removed from the history: a row a time and day.

    ``(recorded_xid, history_id)`` is the last of these attempts: a reader that had read up to it has missed nothing.
    """

    __fairqueue_verbs__ = "the housekeeping of the queues' history writes it"
    __tablename__ = "fq_pruned_history"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    finished_from: Mapped[datetime] = mapped_column(Instant)
    finished_until: Mapped[datetime] = mapped_column(Instant)
    recorded_xid: Mapped[int] = mapped_column(Xid8)
    history_id: Mapped[int] = mapped_column(BigInteger)
    pruned_at: Mapped[datetime] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """The key under the name that the installation gives it."""
        return (
            PrimaryKeyConstraint("id", name=conv("fq_pruned_history_pkey")),
            CheckConstraint(
                "history_id > 0 and finished_from < finished_until and pruned_at between 0 and 253402300799999999",
                name=conv("fq_pruned_history_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
