"""Mixin of requests to workers to stop."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import Any, ClassVar

from sqlalchemy import CheckConstraint, PrimaryKeyConstraint, Text
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.relationships import Related  # noqa: TC001 - SQLAlchemy reads the annotations
from sqlalchemy_fairqueue.models.types import Instant


class StopRequestMixin(FairqueueMixin):
    """A request to the workers of a queue that have the name ``consumer`` to stop, by ``requested_by``.

    The row stays when they have stopped; a later request deletes it after an hour.
    """

    __fairqueue_verbs__ = "use queue.admin.stop_worker(session, ...)"
    __tablename__ = "fq_stop_request"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {}

    queue: Mapped[str] = mapped_column(Text(collation="C"))
    consumer: Mapped[str] = mapped_column(Text(collation="C"))
    requested_by: Mapped[str] = mapped_column(Text)
    requested_at: Mapped[datetime] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints and indexes under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("queue", "consumer", name=conv("fq_stop_request_pkey")),
            CheckConstraint(
                "octet_length(queue) between 1 and 512 and octet_length(consumer) between 1 and 512 "
                "and octet_length(requested_by) between 1 and 512 and requested_at between 0 and 253402300799999999",
                name=conv("fq_stop_request_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
