"""Mixins of what is kept of messages that have ended, and of those who wait for it."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import Any, ClassVar
from uuid import UUID  # noqa: TC003 - SQLAlchemy reads the annotations

from sqlalchemy import BigInteger, CheckConstraint, Index, LargeBinary, PrimaryKeyConstraint, Text, Uuid
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.relationships import Related  # noqa: TC001 - SQLAlchemy reads the annotations
from sqlalchemy_fairqueue.models.types import Instant


class ResultMixin(FairqueueMixin):
    """The result of a message that has ended, kept until ``expires_at``.

    ``outcome`` is "completed": ``content`` is what its handler returned, encoded as payloads are, None for None;
    "unkept": ``problem`` says why it is not kept; or "cancelled". ``queue.result`` reads it.
    """

    __fairqueue_verbs__ = "use queue.configure(session, result_retention=...) and queue.result(session, ...)"
    __tablename__ = "fq_result"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {}

    message_id: Mapped[int] = mapped_column(BigInteger, autoincrement=False)
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    channel: Mapped[str] = mapped_column(Text(collation="C"))
    kind: Mapped[str] = mapped_column(Text)
    outcome: Mapped[str] = mapped_column(Text)
    content: Mapped[bytes | None] = mapped_column(LargeBinary)
    problem: Mapped[str | None] = mapped_column(Text)
    finished_at: Mapped[datetime] = mapped_column(Instant)
    expires_at: Mapped[datetime] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("message_id", name=conv("fq_result_pkey")),
            CheckConstraint("outcome in ('completed', 'unkept', 'cancelled')", name=conv("fq_result_outcome_check")),
            CheckConstraint(
                "octet_length(content) <= 1048576 and octet_length(problem) <= 65536",
                name=conv("fq_result_content_check"),
            ),
            Index(conv("fq_result_expires_ix"), "expires_at"),
            {"schema": cls.__fairqueue_schema__},
        )


class ResultWaitMixin(FairqueueMixin):
    """A process that waits for the result of a message, until ``waiting_until``."""

    __fairqueue_verbs__ = "queue.result(engine, ..., timeout=...) writes it"
    __tablename__ = "fq_result_wait"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {}

    message_id: Mapped[int] = mapped_column(BigInteger, autoincrement=False)
    waiter: Mapped[UUID] = mapped_column(Uuid)
    waiting_until: Mapped[datetime] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("message_id", "waiter", name=conv("fq_result_wait_pkey")),
            {"schema": cls.__fairqueue_schema__},
        )
