"""Statements on psycopg's libpq, past its cursors: those take most of a call's time.

psycopg counts how often it sees a statement, prepares it, and deallocates what it has prepared; so its own cursors send
a statement until it is prepared. Its cache has no public name. Without it, or in another form, cursors send everything.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.drivers.base import NumberedStatement

    Values = Sequence[Any]

T = TypeVar("T")
_Prepared = tuple[bytes, "Parameters"]
"""The name under which psycopg has prepared a statement, and its parameters."""

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


@cache
def names() -> SimpleNamespace:
    """What is used of psycopg, imported once: an import costs much of a call, and an application may have another."""
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


def is_plain(driver: Any) -> bool:
    """Whether a connection is psycopg's own, with its own cursors, in UTF-8, and no pipeline: nobody else wraps it."""
    found = names()
    return (
        type(driver) in found.connections
        and driver.cursor_factory in found.cursors
        and _is_psycopgs(driver.cursor_factory.execute)
        and driver.pgconn.pipeline_status == NO_PIPELINE
        and driver.pgconn.parameter_status(b"client_encoding") == b"UTF8"
    )


def _is_psycopgs(method: Any) -> bool:
    """Whether nobody has put a method of their own in the place of psycopg's, whatever name they gave it."""
    return type(method) is FunctionType and method.__globals__["__name__"].startswith("psycopg.")


def is_idle(driver: Any) -> bool:
    """Whether a connection is in no transaction."""
    return bool(driver.pgconn.transaction_status == _IDLE)


def is_connected(pgconn: Any) -> bool:
    """Whether nothing has told yet that a connection is lost or closed."""
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
    """A cursor of psycopg's for statements with numbered parameters."""
    found = names()
    kind = found.raw_cursor if type(driver) is found.connections[0] else found.raw_async_cursor
    return kind(driver, row_factory=found.tuple_row)


class Parameters(NamedTuple):
    """Parameters of a statement as libpq takes them: texts, and bytes as they are.

    So a parameter has the same type in each call, and psycopg prepares a statement once.
    """

    values: list[bytes | None]
    types: tuple[int, ...]
    formats: list[int]

    def for_cursor(self) -> list[Any]:
        """The same as a cursor of psycopg takes them."""
        binary = zip(self.values, self.formats, strict=True)
        return [value if value is None or format_ == _BINARY else value.decode() for value, format_ in binary]


def parameters(values: Values) -> Parameters | None:
    """Values as parameters; None: one of them has no text here.

    Raises:
        UnicodeEncodeError: A text has no bytes in UTF-8.
    """
    found: list[bytes | None] = []
    types: list[int] = []
    formats: list[int] = []
    for value in values:
        encoded: bytes | None
        type_, format_ = _UNKNOWN, _TEXT
        if value is None:
            encoded = None
        elif isinstance(value, str):
            # libpq ends a text there; psycopg refuses it.
            if "\x00" in value:
                return None
            encoded = value.encode()
        elif isinstance(value, bytes):
            encoded, type_, format_ = value, _BYTEA, _BINARY
        elif type(value) is int:
            encoded = b"%d" % value
        elif type(value) is bool:
            encoded = b"true" if value else b"false"
        else:
            return None
        found.append(encoded)
        types.append(type_)
        formats.append(format_)
    return Parameters(found, tuple(types), formats)


def send(
    connection: Connection,
    driver: Any,
    statements: Sequence[tuple[NumberedStatement, Parameters]],
    rows: list[Sequence[Any]],
    *,
    commit: bool,
    as_bytes: bool,
) -> bool:
    """Send statements that psycopg has prepared, and with *commit* COMMIT, in one round trip.

    Args:
        connection: SQLAlchemy's.
        driver: The driver's connection under it, which is plain, and without *commit* idle.
        statements: Each with its parameters; one, without *commit*.
        rows: Gets the rows of each that the server executed, also when a later one or the COMMIT fails.
        commit: Whether to send COMMIT.
        as_bytes: Whether their rows come in the binary format.

    Returns:
        False: nothing was sent; psycopg has not prepared all of them.
    """
    known = getattr(getattr(driver, "_prepared", None), "_names", None)
    if not known or driver.prepare_threshold is None:
        return False
    ready: list[tuple[bytes, Parameters]] = []
    for statement, values in statements:
        if (name := known.get((statement.encoded, values.types))) is None:
            return False
        ready.append((name, values))
    pgconn, failure = driver.pgconn, None
    result_format = _BINARY if as_bytes else _TEXT
    if commit:
        begin = begin_statement(driver)
        answers: list[Any] = []
        try:
            _waited(connection, driver, pipelined(pgconn, begin, ready, answers, result_format))
        except names().failure as error:
            # It is raised below, unless the server said more.
            failure = error
            answers += last_words(pgconn, len(ready))
            if pgconn.pipeline_status != NO_PIPELINE:
                # As of a pipeline of psycopg's.
                _close(connection, driver)
        results = answers[begin is not None :][: len(ready)]
    else:
        answers = results = _waited(connection, driver, executed(pgconn, ready[0], result_format))
    failure = failure_of(answers, driver) or failure
    for result in results:
        if failure is None or result.status in _FINE:
            # By the adapters of the connection.
            transformer = names().transformer(driver)
            transformer.set_pgresult(result)
            rows.append(transformer.load_rows(0, result.ntuples, tuple))
    if failure is not None:
        raise failure
    return True


def executed(pgconn: Any, statement: _Prepared, result_format: int) -> Generator[Any, Any, list[Any]]:
    """Execute a statement; psycopg waits for it."""
    name, values = statement
    pgconn.send_query_prepared(name, values.values, values.formats, result_format=result_format)
    return (yield from names().execute(pgconn))


def pipelined(
    pgconn: Any, begin: bytes | None, statements: Sequence[_Prepared], answers: list[Any], result_format: int
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
        for name, values in statements:
            pgconn.send_query_prepared(name, values.values, values.formats, result_format=result_format)
        pgconn.send_query_params(b"commit", None)
        pgconn.pipeline_sync()
        # It reads while it writes: the server may answer before it has read the last megabytes.
        yield from found.send(pgconn)
        for _ in range((begin is not None) + len(statements) + 1):
            answers += yield from found.fetch_many(pgconn)
        yield from found.fetch_many(pgconn)
    finally:
        if is_connected(pgconn):
            pgconn.exit_pipeline_mode()


def last_words(pgconn: Any, statements: int) -> list[Any]:
    """Return the results of so many statements in a pipeline that are left on a connection that the server ended.

    One says why it did. psycopg does not read it if the socket's end comes with it.
    """
    # A result of each, and None behind it.
    results = [pgconn.get_result() for _ in range(2 * (statements + 1))]
    return [result for result in results if result is not None]


def failure_of(results: Sequence[Any], driver: Any) -> Exception | None:
    """The error of psycopg for the first result that is one, if any is."""
    for result in results:
        if result.status not in _FINE:
            error: Exception = names().error(result, encoding=driver.info.encoding)
            return error
    return None


def begin_statement(connection: Any) -> bytes | None:
    """What psycopg would send to begin a transaction on a connection; None: it is in one."""
    if not is_idle(connection):
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
    """The result of a coroutine of a connection's driver, which SQLAlchemy waits for as for a statement."""
    adapted: Any = connection.connection.dbapi_connection
    result: T = adapted.run_async(lambda _: coroutine)
    return result


def _waited(connection: Connection, driver: Any, answers: Generator[Any, Any, T]) -> T:
    """The end of what psycopg has to wait for, in its way: with signals, and a cancel on Ctrl-C or of the task."""
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
