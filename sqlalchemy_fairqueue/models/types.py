"""Column types: BIGINT microseconds in the database, aware datetimes and timedeltas in Python."""

from __future__ import annotations

# ruff: noqa: ARG002 - the signatures are SQLAlchemy's
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger
from sqlalchemy.types import TypeDecorator

from sqlalchemy_fairqueue.times import duration, instant, instant_microseconds, microseconds

if TYPE_CHECKING:
    from sqlalchemy import Dialect


class Instant(TypeDecorator[datetime]):
    """An instant: an aware datetime in Python, in UTC when it is read. A naive one is refused with ValueError."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> int | None:
        """The instant as microseconds since the epoch."""
        if value is None:
            return None
        if not isinstance(value, datetime):
            problem = f"{value!r} is not an instant; compare the column with an aware datetime"
            raise TypeError(problem)
        return instant_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Microseconds since the epoch as an instant."""
        return None if value is None else instant(value)

    @property
    def python_type(self) -> type[Any]:
        """What a value is in Python."""
        return datetime


class Duration(TypeDecorator[timedelta]):
    """A duration: a timedelta in Python."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> int | None:
        """The duration as microseconds."""
        if value is None:
            return None
        if not isinstance(value, timedelta):
            problem = f"{value!r} is not a duration; compare the column with a timedelta"
            raise TypeError(problem)
        return microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> timedelta | None:
        """Microseconds as a duration."""
        return None if value is None else duration(value)

    @property
    def python_type(self) -> type[Any]:
        """What a value is in Python."""
        return timedelta
