"""Mixin of keys that stay taken for a period."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime, timedelta  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import Any, ClassVar

from sqlalchemy import BigInteger, CheckConstraint, Index, PrimaryKeyConstraint, Text, text
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.relationships import Related  # noqa: TC001 - SQLAlchemy reads the annotations
from sqlalchemy_fairqueue.models.types import Duration, Instant


class KeyPeriodMixin(FairqueueMixin):
    """A key that stays taken until ``expires_at``, also when its message has ended.

    ``expires_at`` is None while the period has not begun, because it is counted from the end of its message.
    Housekeeping deletes the row afterwards.
    """

    __fairqueue_verbs__ = "queue.enqueue(session, ..., key=..., unique_for=...) writes it"
    __tablename__ = "fq_key_period"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {}

    queue: Mapped[str] = mapped_column(Text(collation="C"))
    channel: Mapped[str] = mapped_column(Text(collation="C"))
    key: Mapped[str] = mapped_column(Text(collation="C"))
    message_id: Mapped[int] = mapped_column(BigInteger)
    unique_for: Mapped[timedelta] = mapped_column(Duration)
    expires_at: Mapped[datetime | None] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("queue", "channel", "key", name=conv("fq_key_period_pkey")),
            CheckConstraint("unique_for >= 1", name=conv("fq_key_period_check")),
            Index(conv("fq_key_period_expires_ix"), "expires_at", postgresql_where=text("expires_at is not null")),
            Index(conv("fq_key_period_message_ix"), "message_id", postgresql_where=text("expires_at is null")),
            {"schema": cls.__fairqueue_schema__},
        )
