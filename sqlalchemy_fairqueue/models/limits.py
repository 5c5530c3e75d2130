"""Mixins of shared limits, which several queues draw from."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime, timedelta  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Index, Integer, PrimaryKeyConstraint, Text, text
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.types import Duration, Instant

_WRITTEN_BY = "the dispatcher writes it; use queue.limits.configure(session, name, ...)"


class LimitMixin(FairqueueMixin):
    """A shared limit: what several queues together may have out, and at which rate they may take."""

    __fairqueue_verbs__ = "use queue.limits.configure(session, name, ...)"
    __tablename__ = "fq_limit"

    name: Mapped[str] = mapped_column(Text(collation="C"))
    max_concurrency: Mapped[int | None] = mapped_column(Integer)
    rate_interval: Mapped[timedelta] = mapped_column(Duration, server_default=text("0"))
    rate_burst: Mapped[int] = mapped_column(Integer, server_default=text("1"))

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("name", name=conv("fq_limit_pkey")),
            CheckConstraint("octet_length(name) between 1 and 512", name=conv("fq_limit_name_check")),
            CheckConstraint(
                "max_concurrency >= 1 and rate_interval between 0 and 31536000000000 "
                "and rate_burst between 1 and 1000000",
                name=conv("fq_limit_values_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )


class LimitShareMixin(FairqueueMixin):
    """A queue of a shared limit: what it has drawn, in virtual time, and until when it counts as held back.

    The row with queue ``''`` is that of the limit itself, with its rate. One row a limit and queue is the key; the
    table has no unique index, by design.
    """

    __fairqueue_verbs__ = _WRITTEN_BY
    __tablename__ = "fq_limit_share"

    limit_name: Mapped[str] = mapped_column(Text(collation="C"))
    queue: Mapped[str] = mapped_column(Text(collation="C"))
    row_version: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    tag: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    rate_at: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))
    contends_until: Mapped[datetime] = mapped_column(Instant, server_default=text("0"))

    @declared_attr.directive
    def __mapper_args__(cls) -> dict[str, Any]:
        """The key of the mapping; the table itself has none."""
        return {"primary_key": [cls.__table__.c.limit_name, cls.__table__.c.queue]}

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Indexes under the names that the installation gives them."""
        return (
            Index(conv("fq_limit_share_newest_ix"), "limit_name", "queue", "row_version"),
            CheckConstraint(
                "row_version between 0 and 4611686018427387903 and tag between 0 and 4611686018427387903 "
                "and rate_at between 0 and 253402300799999999 and contends_until between 0 and 253402300799999999",
                name=conv("fq_limit_share_values_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
