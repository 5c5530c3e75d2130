"""Column types: BIGINT microseconds in the database, aware datetimes and timedeltas in Python; transaction ids.

Importing this module tells SQLAlchemy's PostgreSQL dialects of the type xid8, which they would warn of when they
reflect the history.
"""

from __future__ import annotations

# ruff: noqa: ARG002 - the signatures are SQLAlchemy's
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import TypeDecorator, UserDefinedType

from sqlalchemy_fairqueue.times import duration, instant, instant_microseconds, microseconds

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Xid8(UserDefinedType[int]):
    """The id of a transaction, as PostgreSQL counts them without wrapping around: an int in Python."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **given: Any) -> str:
        """Its name in PostgreSQL."""
        return "xid8"

    def bind_processor(self, dialect: Dialect) -> Callable[[int | None], str | None]:
        """An int as PostgreSQL reads it."""
        return lambda value: None if value is None else str(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], int | None]:
        """What PostgreSQL wrote as an int."""
        return lambda value: None if value is None else int(value)

    @property
    def python_type(self) -> type[Any]:
        """What a value is in Python."""
        return int


ischema_names.setdefault("xid8", Xid8)
