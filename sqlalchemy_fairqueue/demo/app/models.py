"""The business: customers, the source files they upload, and what is found in each. It knows no queue."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import DateTime, ForeignKey, MetaData, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

LEASE = timedelta(seconds=3)
"""The time for which a file stays with a dead worker. Far below the default, for an audience that waits."""


class Base(DeclarativeBase):
    """Base of the app's models."""

    metadata = MetaData(naming_convention={"fk": "fk_%(table_name)s_%(column_0_name)s", "ix": "ix_%(column_0_label)s"})
    type_annotation_map = {datetime: DateTime(timezone=True)}  # noqa: RUF012 - SQLAlchemy declares it without ClassVar


class Customer(Base):
    """Somebody who uploads files, and should not have to wait for the others."""

    __tablename__ = "customer"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class Upload(Base):
    """A source file of a customer.

    The content stays where *path* says; an app with several machines would keep it in an object store.
    """

    __tablename__ = "upload"

    key: Mapped[str] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    path: Mapped[str]
    uploaded_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SourceStats(Base):
    """The content of an upload, or why it could not be parsed.

    Nothing keeps an upload from having two: the demo counts at the end that each has exactly one.
    """

    __tablename__ = "source_stats"

    id: Mapped[int] = mapped_column(primary_key=True)
    upload_key: Mapped[str] = mapped_column(ForeignKey(Upload.key), index=True)
    lines: Mapped[int]
    functions: Mapped[int]
    classes: Mapped[int]
    imports: Mapped[int]
    error: Mapped[str | None]
    parsed_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
