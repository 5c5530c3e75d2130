"""Mixins of plans, which channels follow."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import Any

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, Index, PrimaryKeyConstraint, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.types import Instant


class PlanMixin(FairqueueMixin):
    """A plan of a queue: a policy with a name, and how far its last change has come.

    ``policy`` has the fields of a policy by the names of the columns of :class:`ChannelStateMixin`, ``rate_interval``
    in microseconds. ``spread_after`` is the last channel that the change was brought to; None: to all.
    """

    __fairqueue_verbs__ = "use queue.plans.configure(session, name, ...)"
    __tablename__ = "fq_plan"

    queue: Mapped[str] = mapped_column(Text(collation="C"))
    name: Mapped[str] = mapped_column(Text(collation="C"))
    policy: Mapped[dict[str, Any]] = mapped_column(JSONB)
    revision: Mapped[int] = mapped_column(BigInteger)
    spread_after: Mapped[int | None] = mapped_column(BigInteger)
    spread_again: Mapped[list[int] | None] = mapped_column(ARRAY(BigInteger))
    spread_at: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("queue", "name", name=conv("fq_plan_pkey")),
            CheckConstraint(
                "octet_length(queue) between 1 and 512 and octet_length(name) between 1 and 512",
                name=conv("fq_plan_names_check"),
            ),
            CheckConstraint(
                "jsonb_typeof(policy) = 'object' and octet_length(policy::text) <= 65536",
                name=conv("fq_plan_policy_check"),
            ),
            CheckConstraint(
                "revision >= 0 and spread_after >= 0 and spread_at between 0 and 253402300799999999",
                name=conv("fq_plan_spread_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )


class ChannelPlanMixin(FairqueueMixin):
    """The plan that a channel follows, and the columns of its policy that were configured for it alone.

    A channel has a row if it follows a plan, or was configured by itself; ``plan`` None: it follows none. ``revision``
    is that of the plan whose values the state of the channel has.
    """

    __fairqueue_verbs__ = "use queue.configure_channel(session, channel, plan=...)"
    __tablename__ = "fq_channel_plan"

    channel_id: Mapped[int] = mapped_column(BigInteger, autoincrement=False)
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    plan: Mapped[str | None] = mapped_column(Text(collation="C"))
    overridden: Mapped[list[str]] = mapped_column(ARRAY(Text(collation="C")), server_default=text("'{}'"))
    revision: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("channel_id", name=conv("fq_channel_plan_pkey")),
            CheckConstraint(
                "octet_length(queue) between 1 and 512 and octet_length(plan) between 1 and 512 "
                "and cardinality(overridden) <= 100 and revision >= 0",
                name=conv("fq_channel_plan_check"),
            ),
            Index(
                conv("fq_channel_plan_followers_ix"),
                "queue",
                "plan",
                "channel_id",
                postgresql_where=text("plan is not null"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
