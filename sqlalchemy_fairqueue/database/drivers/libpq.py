"""Statements on psycopg's libpq, past its cursors: those take most of a call's time.

psycopg counts how often it sees a statement, prepares it, and deallocates what it has prepared; so its own cursors send
a statement until it is prepared. Its cache has no public name. Without it, or in another form, cursors send everything.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from functools import cache, partial
from itertools import starmap
from operator import attrgetter
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlalchemy_fairqueue.database.drivers.base import Driver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.drivers.base import NumberedStatement

    Values = Sequence[Any]

T = TypeVar("T")

NO_PIPELINE = 0
"""PQ_PIPELINE_OFF."""
_IDLE = 0
"""PQTRANS_IDLE."""
_ACTIVE, _GONE = 1, 4
"""PQTRANS_ACTIVE, and PQTRANS_UNKNOWN of a connection that is closed."""
_OK = 0
"""CONNECTION_OK."""
_FINE = {1, 2, 10}
"""PGRES_COMMAND_OK, PGRES_TUPLES_OK, PGRES_PIPELINE_SYNC."""
_TEXT, _BINARY = 0, 1
_BYTEA = 17
_UNKNOWN = 0
_CANCEL_SECONDS = 5.0
_status, _name = attrgetter("status"), attrgetter("name")


@cache
def names() -> SimpleNamespace:
    """Import what is used of psycopg, once; an application may use another driver."""
    from psycopg import AsyncConnection, AsyncCursor, AsyncRawCursor, Connection, Cursor, Error, RawCursor, generators
    from psycopg.adapt import Transformer
    from psycopg.errors import error_from_result, lookup
    from psycopg.rows import tuple_row

    return SimpleNamespace(
        connections=(Connection, AsyncConnection),
        cursors=(Cursor, AsyncCursor),
        raw_cursor=RawCursor,
        raw_async_cursor=AsyncRawCursor,
        transformer=Transformer,
        execute=generators.execute,
        send=generators.send,
        fetch_many=generators.fetch_many,
        failure=Error,
        error=error_from_result,
        error_class=lookup,
        tuple_row=tuple_row,
    )


@cache
def _has_pipelines() -> bool:
    from psycopg import Pipeline

    return Pipeline.is_supported()


class OnLibpq(Driver):
    """psycopg 3, as far as statements go to its libpq."""

    passes_sqlalchemy = True

    def give_up(self, connection: Connection) -> bool:
        """As for Driver."""
        return give_up(connection.connection.driver_connection)

    def can_commit_with(self, connection: Connection) -> bool:
        """As for Driver: it needs the pipeline mode of libpq 14."""
        driver: Any = connection.connection.driver_connection
        return _has_pipelines() and bool(driver.pgconn.pipeline_status == NO_PIPELINE)

    def send_past(
        self,
        connection: Connection,
        statements: Sequence[tuple[NumberedStatement, Sequence[Any]]],
        rows: list[Sequence[Any]],
        *,
        commit: bool,
        as_bytes: bool,
    ) -> bool:
        """As for Driver."""
        driver: Any = connection.connection.driver_connection
        if not is_plain(driver) or not (commit or driver.pgconn.transaction_status == _IDLE):
            return False
        known = (
            None if driver.prepare_threshold is None else getattr(getattr(driver, "_prepared", None), "_names", None)
        )
        ready: list[Any] = list(starmap(partial(given, known or {}), statements))
        if None in ready or None in map(_name, ready):
            return self.send_by_cursors(connection, driver, ready, rows, commit=commit, as_bytes=as_bytes)
        pgconn, found, failure = driver.pgconn, names(), None
        result_format = _BINARY if as_bytes else _TEXT
        if commit:
            begin = begin_statement(driver)
            answers: list[Any] = []
            try:
                _waited(connection, driver, pipelined(pgconn, begin, ready, answers, result_format))
            except found.failure as error:
                # It is raised below, unless the server said more.
                failure = error
                answers += last_words(pgconn, len(ready))
                if pgconn.pipeline_status != NO_PIPELINE:
                    # As of a pipeline of psycopg's.
                    _close(connection, driver)
            results = answers[begin is not None :][: len(ready)]
        else:
            answers = results = _waited(connection, driver, executed(pgconn, ready[0], result_format))
        if not _FINE.issuperset(map(_status, answers)):
            failure = failure_of(answers, driver)
        for result in results:
            if failure is None or result.status in _FINE:
                # By the adapters of the connection.
                transformer = found.transformer(driver)
                transformer.set_pgresult(result)
                rows.append(transformer.load_rows(0, result.ntuples, tuple))
        if failure is not None:
            raise failure
        return True

    @abstractmethod
    def send_by_cursors(
        self,
        connection: Connection,
        driver: Any,
        statements: Sequence[Given | None],
        rows: list[Sequence[Any]],
        *,
        commit: bool,
        as_bytes: bool,
    ) -> bool:
        """Send statements by cursors, which prepare what they see often. All else as for Driver's ``send_past``."""


def is_plain(driver: Any) -> bool:
    """Return whether a connection is a plain one of psycopg, with its own cursors, in UTF-8 and outside a pipeline."""
    found = names()
    cursors = driver.cursor_factory
    if type(driver) not in found.connections or cursors not in found.cursors:
        return False
    # Whether a subclass replaces one of psycopg's methods, whatever its name.
    execute, pgconn = cursors.execute, driver.pgconn
    return (
        type(execute) is FunctionType
        and execute.__globals__["__name__"].startswith("psycopg.")
        and pgconn.pipeline_status == NO_PIPELINE
        and pgconn.parameter_status(b"client_encoding") == b"UTF8"
    )


def is_connected(pgconn: Any) -> bool:
    """Return whether libpq does not know yet that the connection is lost or closed."""
    return bool(pgconn.status == _OK)


def give_up(driver: Any) -> bool:
    """Cancel what the server has not answered, as psycopg does after Ctrl-C. Return whether the connection is useless.

    A task's cancel comes from psycopg itself.
    """
    pgconn = driver.pgconn
    if pgconn.transaction_status == _ACTIVE and type(driver) is not names().connections[1]:
        with suppress(names().failure):
            driver.cancel_safe(timeout=_CANCEL_SECONDS)
    return pgconn.pipeline_status != NO_PIPELINE or pgconn.transaction_status in {_ACTIVE, _GONE}


def raw_cursor(driver: Any) -> Any:
    """Make a cursor of psycopg for statements with numbered parameters."""
    found = names()
    kind = found.raw_cursor if type(driver) is found.connections[0] else found.raw_async_cursor
    return kind(driver, row_factory=found.tuple_row)


class Given(NamedTuple):
    """A statement with its parameters as libpq takes them: texts, and bytes as they are.

    So a parameter has the same type in each call, and psycopg prepares a statement once. The name is that under which
    it has; None: it has not.
    """

    sql: str
    name: bytes | None
    parameters: list[bytes | None]
    formats: list[int]

    def for_cursor(self) -> list[Any]:
        """Return the parameters as a cursor of psycopg takes them."""
        both = zip(self.parameters, self.formats, strict=True)
        return [value.decode() if value is not None and format_ == _TEXT else value for value, format_ in both]


def given(known: Any, statement: NumberedStatement, values: Values) -> Given | None:
    """Return a statement to send; *known*: what psycopg has prepared. None if a value has no text form here.

    Raises:
        UnicodeEncodeError: A text has no bytes in UTF-8.
    """
    found = list(values)
    types, formats = [_UNKNOWN] * len(found), [_TEXT] * len(found)
    for index, value in enumerate(found):
        if value is None:
            continue
        if isinstance(value, str):
            # libpq ends a text there; psycopg refuses it.
            if "\x00" in value:
                return None
            found[index] = value.encode()
        elif isinstance(value, bytes):
            types[index], formats[index] = _BYTEA, _BINARY
        elif type(value) is int:
            found[index] = b"%d" % value
        elif type(value) is bool:
            found[index] = b"true" if value else b"false"
        else:
            return None
    return Given(statement.sql, known.get((statement.encoded, tuple(types))), found, formats)


def executed(pgconn: Any, statement: Given, result_format: int) -> Generator[Any, Any, list[Any]]:
    """Execute a statement; psycopg waits for it."""
    pgconn.send_query_prepared(statement.name, statement.parameters, statement.formats, result_format=result_format)
    return (yield from names().execute(pgconn))


def pipelined(
    pgconn: Any, begin: bytes | None, statements: Sequence[Given], answers: list[Any], result_format: int
) -> Generator[Any, Any, None]:
    """Send statements and COMMIT in one round trip; psycopg waits for it.

    Args:
        pgconn: libpq's connection.
        begin: What begins the transaction; None: it has begun.
        statements: What is executed between.
        answers: Gets a result of each, from that of *begin* to COMMIT's, as far as the server answered.
        result_format: Of the rows.
    """
    found = names()
    pgconn.enter_pipeline_mode()
    try:
        if begin is not None:
            pgconn.send_query_params(begin, None)
        for one in statements:
            pgconn.send_query_prepared(one.name, one.parameters, one.formats, result_format=result_format)
        pgconn.send_query_params(b"commit", None)
        pgconn.pipeline_sync()
        # It reads while it writes: the server may answer before it has read the last megabytes.
        yield from found.send(pgconn)
        for _ in range((begin is not None) + len(statements) + 1):
            answers += yield from found.fetch_many(pgconn)
        yield from found.fetch_many(pgconn)
    finally:
        if pgconn.status == _OK:
            pgconn.exit_pipeline_mode()


def last_words(pgconn: Any, statements: int) -> list[Any]:
    """Return the results of so many statements in a pipeline that are left on a connection that the server ended.

    One says why it did. psycopg does not read it if the socket's end comes with it.
    """
    # A result of each, and None behind it.
    results = [pgconn.get_result() for _ in range(2 * (statements + 1))]
    return [result for result in results if result is not None]


def failure_of(results: Sequence[Any], driver: Any) -> Exception | None:
    """Return psycopg's error for the first result that is an error, if any."""
    for result in results:
        if result.status not in _FINE:
            error: Exception = names().error(result, encoding=driver.info.encoding)
            return error
    return None


def begin_statement(connection: Any) -> bytes | None:
    """Return the BEGIN that psycopg would send on a connection; None if it is in a transaction."""
    if connection.pgconn.transaction_status != _IDLE:
        return None
    words = ["begin"]
    if connection.isolation_level is not None:
        words.append(f"isolation level {connection.isolation_level.name.replace('_', ' ').lower()}")
    if connection.read_only is not None:
        words.append("read only" if connection.read_only else "read write")
    if connection.deferrable is not None:
        words.append("deferrable" if connection.deferrable else "not deferrable")
    return " ".join(words).encode()


def awaited_on(connection: Connection, coroutine: Awaitable[T]) -> T:
    """Wait for a coroutine of a connection's driver as SQLAlchemy waits for a statement; return its result."""
    adapted: Any = connection.connection.dbapi_connection
    result: T = adapted.run_async(lambda _: coroutine)
    return result


def _waited(connection: Connection, driver: Any, answers: Generator[Any, Any, T]) -> T:
    """Wait as psycopg does, so that signals, Ctrl-C and the cancel of a task interrupt it; return the result."""
    if connection.dialect.is_async:
        return awaited_on(connection, _awaited(driver, answers))
    with driver.lock:
        ended: T = driver.wait(answers)
    return ended


async def _awaited(driver: Any, answers: Generator[Any, Any, T]) -> T:
    async with driver.lock:
        ended: T = await driver.wait(answers)
    return ended


def _close(connection: Connection, driver: Any) -> None:
    closing = driver.close()
    if connection.dialect.is_async:
        awaited_on(connection, closing)
