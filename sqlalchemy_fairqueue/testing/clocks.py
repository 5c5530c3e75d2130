"""Clock of a test's database, which the test puts forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.sql.schema import quoted
from sqlalchemy_fairqueue.times import duration, instant, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.checks import check_instant

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Engine

_SCHEMA = """
select n.nspname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where p.proname = 'fq_now' and p.pronargs = 0 and (n.nspname = cast(:schema as text) or cast(:schema as text) is null)
"""
# A sequence rather than a table: every transaction sees at once what is set, and reading it leaves no trace that a
# SERIALIZABLE transaction could fail on.
_OFFSET = "create sequence if not exists {schema}.test_clock minvalue -9223372036854775807 start 0"
_FUNCTION = """
create or replace function {schema}.fq_now() returns bigint language sql volatile parallel safe security definer as $$
  select (extract(epoch from clock_timestamp()) * 1000000)::bigint + last_value from {schema}.test_clock
$$
"""
_ADVANCE = "select setval('{sequence}', last_value + :us) from {sequence}"


class DatabaseClock:
    """The clock by which the library decides what is due, which leases have ended, and when a rate has room.

    All of the library's times come from one function of the database. This replaces it by one that adds an offset, for
    everybody who is connected. For databases of tests only: the function stays in the database, also after
    :meth:`reset`, which takes the offset back.

    Args:
        engine: The database.
        schema: Where fairqueue is installed. Default: the only place where it is.

    Raises:
        InvalidArgument: It is not installed there, or in several schemas.

    Example:
        >>> clock = DatabaseClock(engine)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(days=3))
        >>> clock.advance(timedelta(days=3))
        >>> len(queue.dequeue(engine))
        1
        >>> clock.reset()
    """

    def __init__(self, engine: Engine, schema: str | None = None) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        with self._engine.connect() as connection:
            found = connection.scalars(text(_SCHEMA), {"schema": schema}).all()
            if len(found) != 1:
                where = "the database" if schema is None else f"schema {schema!r}"
                raise InvalidArgument(
                    f"fairqueue is installed {len(found)} times in {where}; migrate the database, or name the schema"
                )
            self._schema = quoted(found[0])
            for statement in (_OFFSET, _FUNCTION):
                connection.exec_driver_sql(
                    statement.format(schema=self._schema), execution_options={"no_parameters": True}
                )

    def now(self) -> datetime:
        """The time that the library takes for now, in UTC.

        See Also:
            :meth:`move_to`
        """
        return instant(self._value(f"select {self._schema}.fq_now()"))

    def advance(self, by: timedelta) -> None:
        """Put the clock forward by so much, at once for everybody. It goes on running."""
        ahead = microseconds(by)
        if ahead < 0:
            raise InvalidArgument(f"by is {by!r}; a clock goes forward: give a timedelta of zero or more")
        sequence = f"{self._schema}.test_clock"
        self._value(_ADVANCE.format(sequence=sequence), us=ahead)

    def move_to(self, instant: datetime) -> None:
        """Put the clock forward to an instant (aware), which must not be past.

        Example:
            >>> clock = DatabaseClock(engine)
            >>> tomorrow = clock.now() + timedelta(days=1)
            >>> clock.move_to(tomorrow)
            >>> clock.now() >= tomorrow
            True
            >>> clock.reset()
        """
        check_instant("instant", instant)
        self.advance(duration(instant_microseconds(instant) - instant_microseconds(self.now())))

    def reset(self) -> None:
        """Let it show the true time again. What was leased or scheduled meanwhile keeps its times."""
        self._value(f"select setval('{self._schema}.test_clock', 0)")

    def _value(self, statement: str, **values: object) -> int:
        with self._engine.connect() as connection:
            return int(connection.scalar(text(statement), values) or 0)
