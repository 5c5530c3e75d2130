"""Column types for BIGINT microseconds (datetimes and timedeltas in Python), for transaction ids and for roles.

Importing this module registers xid, xid8 and regrole with SQLAlchemy, so that it reflects the tables without a warning.
"""

from __future__ import annotations

# ruff: noqa: ARG002 - the signatures are SQLAlchemy's
from datetime import datetime, timedelta
from operator import sub
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Date,
    DateTime,
    Interval,
    Text,
    cast,
    extract,
    literal_column,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import INTERVAL
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from sqlalchemy_fairqueue.times import duration, instant, instant_microseconds, microseconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from sqlalchemy import Dialect, SQLColumnExpression
    from sqlalchemy.sql.operators import OperatorType

_EPOCH = literal_column("timestamptz 'epoch'", DateTime(timezone=True))
_MICROSECOND = literal_column("interval '1 microsecond'", Interval())


def timestamp(instant: SQLColumnExpression[Any]) -> ColumnElement[datetime]:
    """Cast a column of instants to timestamptz, for PostgreSQL's functions and operators.

    In conditions compare the column itself, ``Message.enqueued_at < func.now()``, since no index serves the cast.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> age = func.now() - timestamp(Message.enqueued_at)
        >>> with Session(engine) as session:
        ...     print(session.scalar(select(age).where(Message.id == message_id)) < timedelta(minutes=1))
        True
    """
    return type_coerce(_EPOCH + type_coerce(instant, BigInteger) * _MICROSECOND, DateTime(timezone=True))


def interval(duration: SQLColumnExpression[Any]) -> ColumnElement[timedelta]:
    """Cast a column of durations to interval, for PostgreSQL's functions: ``func.avg(interval(History.wait))``.

    See Also:
        :func:`timestamp`
    """
    return type_coerce(type_coerce(duration, BigInteger) * _MICROSECOND, Interval())


def _kind(value: Any) -> TypeEngine[Any] | None:
    """Return the type of an expression, unwrapped from an application's TypeDecorator; None for a Python value."""
    element = value.__clause_element__() if hasattr(value, "__clause_element__") else value
    if not isinstance(element, ColumnElement):
        return None
    kind: TypeEngine[Any] = element.type
    if isinstance(kind, TypeDecorator) and not isinstance(kind, (Instant, Duration, Interval)):
        kind = kind.impl_instance
    return kind


def _to_microseconds(value: Any) -> Any:
    kind = _kind(value)
    if isinstance(kind, (DateTime, Date)):
        # A time without a zone counts in the connection's time zone, as when PostgreSQL compares it with a timestamptz.
        return type_coerce(_epoch_microseconds(cast(value, DateTime(timezone=True))), Instant)
    if isinstance(kind, (Interval, INTERVAL)):
        return type_coerce(_epoch_microseconds(value), Duration)
    return value


def _epoch_microseconds(value: Any) -> ColumnElement[int]:
    return cast(extract("epoch", value) * literal_column("1000000"), BigInteger)


class _Comparator(TypeDecorator.Comparator[Any]):
    """Compares, adds and subtracts instants and durations; the other operand may have one of PostgreSQL's own types."""

    def operate(self, op: OperatorType, *other: Any, **given: Any) -> Any:
        others = [_to_microseconds(value) for value in other]
        return self._typed(op, others, super().operate(op, *others, **given))

    def reverse_operate(self, op: OperatorType, other: Any, **given: Any) -> Any:
        return self._typed(op, [other], super().reverse_operate(op, other, **given))

    def _typed(self, op: OperatorType, others: list[Any], result: Any) -> Any:
        if op is not sub or not isinstance(self.type, Instant):
            return result
        length = isinstance(others[0], timedelta) or isinstance(_kind(others[0]), Duration)
        return result if length else type_coerce(result, Duration)


class Instant(TypeDecorator[datetime]):
    """A column of instants: an aware datetime in Python, in UTC when read. A naive datetime raises StatementError.

    Example:
        >>> hour_ago = datetime.now(UTC) - timedelta(hours=1)
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(Message.id).where(Message.enqueued_at < hour_ago)).all())
        []
    """

    impl = BigInteger
    cache_ok = True
    comparator_factory = _Comparator

    def process_bind_param(self, value: object, dialect: Dialect) -> int | None:
        """Convert an instant to microseconds since 1970."""
        if value is None:
            return None
        if not isinstance(value, datetime):
            problem = f"{value!r} is not an instant; compare the column with an aware datetime"
            raise TypeError(problem)
        return instant_microseconds(value)

    def coerce_compared_value(self, op: OperatorType | None, value: Any) -> TypeEngine[Any]:
        """Return the type of the other operand of an instant: a duration for a timedelta, otherwise an instant."""
        return Duration() if isinstance(value, timedelta) else self

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Convert microseconds since 1970 to an instant."""
        return None if value is None else instant(value)

    @property
    def python_type(self) -> type[Any]:
        return datetime


class Duration(TypeDecorator[timedelta]):
    """A column of durations: a timedelta in Python, BIGINT microseconds in the database.

    See Also:
        :class:`KeyPeriod`
    """

    impl = BigInteger
    cache_ok = True
    comparator_factory = _Comparator

    def process_bind_param(self, value: object, dialect: Dialect) -> int | None:
        """Convert a duration to microseconds."""
        if value is None:
            return None
        if not isinstance(value, timedelta):
            problem = f"{value!r} is not a duration; compare the column with a timedelta"
            raise TypeError(problem)
        return microseconds(value)

    def process_result_value(self, value: int | Decimal | None, dialect: Dialect) -> timedelta | None:
        """Convert microseconds to a timedelta. If PostgreSQL has added them up, *value* is a Decimal."""
        return None if value is None else duration(int(value))

    @property
    def python_type(self) -> type[Any]:
        return timedelta


class Xid8(UserDefinedType[int]):
    """PostgreSQL's xid8, an int in Python: a transaction id that does not wrap around."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **given: Any) -> str:
        """Return the type's name in PostgreSQL."""
        return "xid8"

    def bind_processor(self, dialect: Dialect) -> Callable[[int | None], str | None]:
        """Return a function that converts an int to the text of an xid8."""
        return lambda value: None if value is None else str(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], int | None]:
        """Return a function that converts an xid8, as the driver returns it, to an int."""
        return lambda value: None if value is None else int(value)

    @property
    def python_type(self) -> type[Any]:
        return int


class Xid8Array(TypeDecorator[list[int]]):
    """An array of xid8, a list of int in Python."""

    impl = ARRAY(Xid8)
    cache_ok = True

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return an expression that reads the ids as numbers, since not every driver reads an array of xid8."""
        return cast(cast(column, ARRAY(Text)), ARRAY(BigInteger))


class Xid(Xid8):
    """PostgreSQL's xid, an int in Python: the transaction id in a row version, which wraps around."""

    cache_ok = True

    def get_col_spec(self, **given: Any) -> str:
        return "xid"


class RoleName(UserDefinedType[str]):
    """PostgreSQL's regrole, a str in Python: the name of a role, quoted if needed."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **given: Any) -> str:
        """Return the type's name in PostgreSQL."""
        return "regrole"

    @property
    def python_type(self) -> type[Any]:
        return str


ischema_names.setdefault("xid8", Xid8)
ischema_names.setdefault("xid", Xid)
ischema_names.setdefault("regrole", RoleName)
