"""Mixin of bulk loads that were committed."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from datetime import datetime  # noqa: TC003 - SQLAlchemy reads the annotations
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, PrimaryKeyConstraint, Text
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.types import Instant


class LoadMixin(FairqueueMixin):
    """A bulk load that was committed, by the name of its job: the same job again adds nothing.

    For a stream the row is that of the last micro-batch, ``batch_id``, and ``source`` is the query of the batches. The
    counts are those of that load.
    """

    __fairqueue_verbs__ = "loads of sqlalchemy_fairqueue.spark write it"
    __tablename__ = "fq_load"

    queue: Mapped[str] = mapped_column(Text(collation="C"))
    job_id: Mapped[str] = mapped_column(Text(collation="C"))
    batch_id: Mapped[int | None] = mapped_column(BigInteger)
    source: Mapped[str | None] = mapped_column(Text)
    messages: Mapped[int] = mapped_column(BigInteger)
    created: Mapped[int] = mapped_column(BigInteger)
    replaced: Mapped[int] = mapped_column(BigInteger)
    duplicates: Mapped[int] = mapped_column(BigInteger)
    dropped: Mapped[int] = mapped_column(BigInteger)
    rejected: Mapped[int] = mapped_column(BigInteger)
    committed_at: Mapped[datetime] = mapped_column(Instant)

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        return (
            PrimaryKeyConstraint("queue", "job_id", name=conv("fq_load_pkey")),
            CheckConstraint("octet_length(job_id) between 1 and 512", name=conv("fq_load_job_id_check")),
            CheckConstraint(
                "octet_length(queue) between 1 and 512 and batch_id >= 0 and messages >= 0 and created >= 0 "
                "and replaced >= 0 and duplicates >= 0 and dropped >= 0 and rejected >= 0 "
                "and committed_at between 0 and 253402300799999999",
                name=conv("fq_load_counts_check"),
            ),
            {"schema": cls.__fairqueue_schema__},
        )
