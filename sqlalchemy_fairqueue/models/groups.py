"""Mixins of groups of messages, and of what is kept until a group is finished."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime, timedelta  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import Any
from uuid import UUID  # noqa: TC003 - SQLAlchemy reads the annotations

from sqlalchemy import BigInteger, Index, LargeBinary, PrimaryKeyConstraint, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.types import Duration, Instant, Xid8

_VERBS = "queue.group makes groups, and workers finish them"


class GroupMixin(FairqueueMixin):
    """A group of messages, with the counts of its members that workers have folded.

    What has happened since stands in the notes: ``queue.groups.status`` adds both. ``message_id`` is the message that
    followed it at ``finished_at``.
    """

    __fairqueue_verbs__ = _VERBS
    __tablename__ = "fq_group"

    group_id: Mapped[UUID] = mapped_column(Uuid)
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    added: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    done: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    failed: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    cancelled: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    created_at: Mapped[datetime] = mapped_column(Instant)
    created_xid: Mapped[int] = mapped_column(Xid8, server_default=text("pg_current_xact_id()"))
    due_at: Mapped[datetime | None] = mapped_column(Instant)
    finished_at: Mapped[datetime | None] = mapped_column(Instant)
    message_id: Mapped[int | None] = mapped_column(BigInteger)
    problem: Mapped[str | None] = mapped_column(Text)
    waits: Mapped[int] = mapped_column(server_default=text("0"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("group_id", name=conv("fq_group_pkey")),
            Index(conv("fq_group_queue_ix"), "queue", "created_at", "group_id"),
            Index(conv("fq_group_due_ix"), "due_at", postgresql_where=text("due_at is not null")),
            Index(conv("fq_group_finished_ix"), "finished_at", postgresql_where=text("finished_at is not null")),
            {"schema": cls.__fairqueue_schema__},
        )


class GroupFollowupMixin(FairqueueMixin):
    """A message that may follow a group: the one for its failure, or the other one."""

    __fairqueue_verbs__ = _VERBS
    __tablename__ = "fq_group_followup"

    group_id: Mapped[UUID] = mapped_column(Uuid)
    on_failure: Mapped[bool]
    channel: Mapped[str] = mapped_column(Text(collation="C"))
    kind: Mapped[str] = mapped_column(Text)
    content: Mapped[bytes] = mapped_column(LargeBinary)
    headers: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    delay: Mapped[timedelta | None] = mapped_column(Duration)
    at: Mapped[datetime | None] = mapped_column(Instant)
    priority: Mapped[int | None]
    key: Mapped[str | None] = mapped_column(Text(collation="C"))
    max_attempts: Mapped[int]
    policy: Mapped[dict[str, Any] | None] = mapped_column(JSONB)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("group_id", "on_failure", name=conv("fq_group_followup_pkey")),
            {"schema": cls.__fairqueue_schema__},
        )


class GroupNoteMixin(FairqueueMixin):
    """A note of a transaction that added members to a group or ended one, until a worker folds it.

    ``id`` is the message that ended, and 0 where members were added.
    """

    __fairqueue_verbs__ = _VERBS
    __tablename__ = "fq_group_note"

    xid: Mapped[int] = mapped_column(Xid8, server_default=text("pg_current_xact_id()"))
    id: Mapped[int] = mapped_column(BigInteger, autoincrement=False)
    group_id: Mapped[UUID] = mapped_column(Uuid)
    added: Mapped[int] = mapped_column(server_default=text("0"))
    done: Mapped[int] = mapped_column(server_default=text("0"))
    failed: Mapped[int] = mapped_column(server_default=text("0"))
    cancelled: Mapped[int] = mapped_column(server_default=text("0"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("xid", "id", "group_id", name=conv("fq_group_note_pkey")),
            {"schema": cls.__fairqueue_schema__},
        )
