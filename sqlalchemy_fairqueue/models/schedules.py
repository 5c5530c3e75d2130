"""Mixins of schedules and the slots that were run."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime, timedelta  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Identity,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.types import Duration, Instant


class ScheduleMixin(FairqueueMixin):
    """A schedule of a channel: what it enqueues, and when.

    Every slot up to ``done_until`` is done: run, or passed over by the rule of ``catch_up``. ``next_at`` is the slot
    after it, as the worker that planned it last found it; at ``due_at`` workers look at the schedule again.
    ``revision`` grows with each change that makes an earlier plan wrong.
    """

    __fairqueue_verbs__ = "queue.schedules.set, remove and pause change schedules"
    __tablename__ = "fq_schedule"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    channel: Mapped[str] = mapped_column(Text(collation="C"))
    name: Mapped[str] = mapped_column(Text(collation="C"))
    cron: Mapped[str | None] = mapped_column(Text)
    timezone: Mapped[str | None] = mapped_column(Text)
    every: Mapped[timedelta | None] = mapped_column(Duration)
    catch_up: Mapped[str] = mapped_column(Text)
    jitter: Mapped[timedelta] = mapped_column(Duration)
    kind: Mapped[str] = mapped_column(Text)
    content: Mapped[bytes] = mapped_column(LargeBinary)
    headers: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    max_attempts: Mapped[int]
    policy: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    in_code: Mapped[bool]
    revision: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    anchor_at: Mapped[datetime] = mapped_column(Instant)
    done_until: Mapped[datetime] = mapped_column(Instant)
    next_at: Mapped[datetime | None] = mapped_column(Instant)
    due_at: Mapped[datetime | None] = mapped_column(Instant)
    paused_at: Mapped[datetime | None] = mapped_column(Instant)
    last_slot_at: Mapped[datetime | None] = mapped_column(Instant)
    last_run_at: Mapped[datetime | None] = mapped_column(Instant)
    last_message_id: Mapped[int | None] = mapped_column(BigInteger)
    problem: Mapped[str | None] = mapped_column(Text)
    problem_at: Mapped[datetime | None] = mapped_column(Instant)
    created_at: Mapped[datetime] = mapped_column(Instant)
    changed_at: Mapped[datetime] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and the index under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("id", name=conv("fq_schedule_pkey")),
            UniqueConstraint("queue", "channel", "name", name=conv("fq_schedule_name_key")),
            CheckConstraint(
                "octet_length(queue) between 1 and 512 and octet_length(channel) between 1 and 512 "
                "and octet_length(name) between 1 and 512 and octet_length(kind) between 1 and 512",
                name=conv("fq_schedule_names_check"),
            ),
            CheckConstraint(
                "num_nonnulls(cron, every) = 1 and num_nonnulls(cron, timezone) <> 1 "
                "and octet_length(cron) between 1 and 512 and octet_length(timezone) between 1 and 512 "
                "and every between 1000000 and 3153600000000000 and jitter between 0 and 3153600000000000 "
                "and catch_up in ('skip', 'last', 'all')",
                name=conv("fq_schedule_times_check"),
            ),
            CheckConstraint(
                "octet_length(content) <= 268435456 and octet_length(headers::text) <= 65536 and max_attempts >= 1 "
                "and octet_length(problem) <= 65536",
                name=conv("fq_schedule_message_check"),
            ),
            Index(conv("fq_schedule_due_ix"), "queue", "due_at", postgresql_where=text("due_at is not null")),
            {"schema": cls.__fairqueue_schema__},
        )


class ScheduleSlotMixin(FairqueueMixin):
    """A slot of a schedule that was run, and its message; old ones are deleted by workers."""

    __fairqueue_verbs__ = "workers of the queue write it when they run a slot"
    __tablename__ = "fq_schedule_slot"

    schedule_id: Mapped[int] = mapped_column(BigInteger)
    slot_at: Mapped[datetime] = mapped_column(Instant)
    message_id: Mapped[int | None] = mapped_column(BigInteger)
    ran_at: Mapped[datetime] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and the index under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("schedule_id", "slot_at", name=conv("fq_schedule_slot_pkey")),
            CheckConstraint(
                "message_id > 0 and slot_at between 0 and 253402300799999999 "
                "and ran_at between 0 and 253402300799999999",
                name=conv("fq_schedule_slot_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
