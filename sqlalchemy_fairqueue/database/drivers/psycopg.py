"""The driver psycopg 3, for sync and async engines alike.

If psycopg has prepared a statement, we send it by psycopg's libpq, since a cursor takes most of a call's time. Cursors
send all other statements, because psycopg prepares a statement only after cursors have sent it several times. The names
of prepared statements are in a private cache of psycopg. If the cache is not as expected, cursors send everything.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from itertools import starmap
from operator import attrgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from sqlalchemy_fairqueue.database.drivers import base
from sqlalchemy_fairqueue.database.drivers.base import LibpqDriver, NumberedStatement, RunInLoop, SocketListener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence

    from sqlalchemy import Connection

    Values = Sequence[Any]
    Bounds = tuple[Sequence[bytes], Sequence[bytes]]

T = TypeVar("T")

_FINE = {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC}
_BYTEA = 17
_UNKNOWN = 0
_CANCEL_SECONDS = 5.0
_COMMIT = (b"commit",)
_NO_BOUNDS: Bounds = ((), ())
_status, _name = attrgetter("status"), attrgetter("name")


def is_plain(driver: Any) -> bool:
    cursors = driver.cursor_factory
    if type(driver) not in (psycopg.Connection, psycopg.AsyncConnection):
        return False
    if cursors not in (psycopg.Cursor, psycopg.AsyncCursor):
        return False
    # A method from another module means that somebody has replaced psycopg's, for example to trace statements.
    execute, pgconn = cursors.execute, driver.pgconn
    return (
        type(execute) is FunctionType
        and execute.__globals__["__name__"].startswith("psycopg.")
        and pgconn.pipeline_status == PipelineStatus.OFF
        and pgconn.parameter_status(b"client_encoding") == b"UTF8"
    )


def give_up(driver: Any) -> bool:
    """Cancel unanswered statements, as psycopg does after Ctrl-C. Return whether the connection is useless.

    On an async connection nothing is cancelled here: psycopg itself does that when the task is cancelled.
    """
    pgconn = driver.pgconn
    if pgconn.transaction_status == TransactionStatus.ACTIVE and not isinstance(driver, psycopg.AsyncConnection):
        with suppress(psycopg.Error):
            driver.cancel_safe(timeout=_CANCEL_SECONDS)
    is_usable = pgconn.transaction_status not in {TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN}
    return not is_usable or bool(pgconn.pipeline_status != PipelineStatus.OFF)


def raw_cursor(driver: Any) -> Any:
    kind: Any = psycopg.RawCursor if type(driver) is psycopg.Connection else psycopg.AsyncRawCursor
    return kind(driver, row_factory=tuple_row)


class Given(NamedTuple):
    """A statement with its parameters as libpq takes them: bytes stay bytes, all other values become texts.

    All texts count as one type, so psycopg need not prepare the statement again for values of other types. ``name`` is
    the name of the prepared statement, or None if psycopg has not prepared it yet.
    """

    sql: str
    name: bytes | None
    parameters: list[bytes | None]
    formats: list[Format]

    def for_cursor(self) -> list[Any]:
        both = zip(self.parameters, self.formats, strict=True)
        return [value.decode() if value is not None and format_ == Format.TEXT else value for value, format_ in both]


def given(known: Any, statement: NumberedStatement, values: Values) -> Given | None:
    """Return a statement as libpq takes it; None if psycopg must convert a value.

    *known* has the names of the statements that psycopg has prepared on the connection.
    """
    found = list(values)
    types, formats = [_UNKNOWN] * len(found), [Format.TEXT] * len(found)
    for index, value in enumerate(found):
        if value is None:
            continue
        if isinstance(value, str):
            # libpq would cut the text off at a NUL; psycopg refuses such a text.
            if "\x00" in value:
                return None
            found[index] = value.encode()
        elif isinstance(value, bytes):
            types[index], formats[index] = _BYTEA, Format.BINARY
        elif type(value) is int:
            found[index] = b"%d" % value
        elif type(value) is bool:
            found[index] = b"true" if value else b"false"
        else:
            return None
    return Given(statement.sql, known.get((statement.encoded, tuple(types))), found, formats)


def executed(pgconn: Any, statement: Given, result_format: int) -> Generator[Any, Any, list[Any]]:
    pgconn.send_query_prepared(statement.name, statement.parameters, statement.formats, result_format=result_format)
    return (yield from generators.execute(pgconn))


def pipelined(
    pgconn: Any, bounds: Bounds, statements: Sequence[Given], answers: list[Any], result_format: int
) -> Generator[Any, Any, None]:
    """Send *statements* in one round trip, between BEGIN and COMMIT if *bounds* has them.

    *answers* receives all results, including those of BEGIN and COMMIT. psycopg's ``wait`` must run this generator.
    """
    before, after = bounds
    pgconn.enter_pipeline_mode()
    try:
        for sql in before:
            pgconn.send_query_params(sql, None)
        for one in statements:
            pgconn.send_query_prepared(one.name, one.parameters, one.formats, result_format=result_format)
        for sql in after:
            pgconn.send_query_params(sql, None)
        pgconn.pipeline_sync()
        # This also reads while it writes. The server may answer before it has read the last megabytes, and would wait
        # until we read its answers.
        yield from generators.send(pgconn)
        for _ in range(len(before) + len(statements) + len(after)):
            answers += yield from generators.fetch_many(pgconn)
        yield from generators.fetch_many(pgconn)
    finally:
        if pgconn.status == ConnStatus.OK:
            pgconn.exit_pipeline_mode()


def last_words(pgconn: Any, statements: int) -> list[Any]:
    """Return the results that are still unread after the server has ended a connection in pipeline mode.

    *statements* is how many statements were sent. One result is the server's reason, which psycopg might not read.
    """
    # Each statement has a result, followed by None.
    results = [pgconn.get_result() for _ in range(2 * (statements + 1))]
    return [result for result in results if result is not None]


def failure_of(results: Sequence[Any], driver: Any) -> Exception | None:
    for result in results:
        if result.status not in _FINE:
            return psycopg.errors.error_from_result(result, encoding=driver.info.encoding)
    return None


def bounds_of(connection: Any) -> Bounds:
    """Return what to send before and after the statements of one round trip to commit them together.

    In an open transaction, send only COMMIT, after them. Otherwise send BEGIN with the connection's options before them
    and COMMIT after them; without options send neither, since PostgreSQL makes one transaction of them anyway.
    """
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        return (), _COMMIT
    words = []
    if connection.isolation_level is not None:
        words.append(f"isolation level {connection.isolation_level.name.replace('_', ' ').lower()}")
    if connection.read_only is not None:
        words.append("read only" if connection.read_only else "read write")
    if connection.deferrable is not None:
        words.append("deferrable" if connection.deferrable else "not deferrable")
    return ((f"begin {' '.join(words)}".encode(),), _COMMIT) if words else _NO_BOUNDS


def awaited_on(connection: Connection, coroutine: Awaitable[T]) -> T:
    adapted: Any = connection.connection.dbapi_connection
    result: T = adapted.run_async(lambda _: coroutine)
    return result


def _waited(connection: Connection, driver: Any, answers: Generator[Any, Any, T]) -> T:
    """Run *answers* by psycopg's wait, which a signal or the cancel of a task interrupts, and return the result."""
    if connection.dialect.is_async:
        return awaited_on(connection, _awaited(driver, answers))
    with driver.lock:
        ended: T = driver.wait(answers)
    return ended


async def _awaited(driver: Any, answers: Generator[Any, Any, T]) -> T:
    async with driver.lock:
        ended: T = await driver.wait(answers)
    return ended


def _done(connection: Connection, answer: Any) -> Any:
    return awaited_on(connection, answer) if connection.dialect.is_async else answer


class Psycopg(LibpqDriver):
    """The driver psycopg 3. Its listeners call libpq directly, for sync and async connections alike."""

    name = "psycopg"
    passes_sqlalchemy = True

    def bytes_cursor(self, factory: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        cursor = factory(*arguments, **options)
        # As text, a content would be twice as long. Cursors that insert parameters into a statement know only text.
        if not isinstance(cursor, (psycopg.ClientCursor, psycopg.AsyncClientCursor)):
            cursor.format = Format.BINARY
        return cursor

    def give_up(self, connection: Connection) -> bool:
        return give_up(connection.connection.driver_connection)

    def can_commit_with(self, connection: Connection) -> bool:
        driver: Any = connection.connection.driver_connection
        return psycopg.Pipeline.is_supported() and bool(driver.pgconn.pipeline_status == PipelineStatus.OFF)

    def send_past(
        self,
        connection: Connection,
        statements: Sequence[tuple[NumberedStatement, Sequence[Any]]],
        rows: list[Sequence[Any]],
        *,
        commit: bool,
        as_bytes: bool,
    ) -> bool:
        driver: Any = connection.connection.driver_connection
        if not is_plain(driver) or not (commit or driver.pgconn.transaction_status == TransactionStatus.IDLE):
            return False
        known = (
            None if driver.prepare_threshold is None else getattr(getattr(driver, "_prepared", None), "_names", None)
        )
        ready: list[Any] = list(starmap(partial(given, known or {}), statements))
        if None in ready or None in map(_name, ready):
            return self._send_by_cursors(connection, driver, ready, rows, commit=commit, as_bytes=as_bytes)
        pgconn = driver.pgconn
        failure: Exception | None = None
        result_format = Format.BINARY if as_bytes else Format.TEXT
        before, after = bounds = bounds_of(driver) if commit else _NO_BOUNDS
        if after or len(ready) > 1:
            answers: list[Any] = []
            try:
                _waited(connection, driver, pipelined(pgconn, bounds, ready, answers, result_format))
            except psycopg.Error as error:
                # Raised below, unless the server gave a reason of its own.
                failure = error
                answers += last_words(pgconn, len(before) + len(ready) + len(after))
                if pgconn.pipeline_status != PipelineStatus.OFF:
                    # A connection that cannot leave pipeline mode is closed, as in _commit_with.
                    _done(connection, driver.close())
            results = answers[len(before) :][: len(ready)]
        else:
            answers = results = _waited(connection, driver, executed(pgconn, ready[0], result_format))
        if not _FINE.issuperset(map(_status, answers)):
            failure = failure_of(answers, driver)
        for result in results:
            if failure is None or result.status in _FINE:
                # The transformer is made for the connection, so it has the connection's adapters.
                transformer = Transformer(driver)
                transformer.set_pgresult(result)
                rows.append(transformer.load_rows(0, result.ntuples, tuple))
        if failure is not None:
            raise failure
        return True

    def commit_with(
        self, connection: Connection, statements: Sequence[tuple[str, Any]], rows: list[Sequence[Any]]
    ) -> None:
        self._commit(connection, connection.connection.driver_connection, statements, rows, _cursor)

    @staticmethod
    def _commit(
        connection: Connection,
        driver: Any,
        statements: Sequence[tuple[str, Any]],
        rows: list[Sequence[Any]],
        cursor: Callable[[Any], Any],
    ) -> None:
        committing = _commit_with(_Pipeline(driver, cursor), statements, rows)
        if connection.dialect.is_async:
            awaited_on(connection, committing)
        else:
            with suppress(StopIteration):
                committing.send(None)

    def _send_by_cursors(
        self,
        connection: Connection,
        driver: Any,
        statements: Sequence[Given | None],
        rows: list[Sequence[Any]],
        *,
        commit: bool,
        as_bytes: bool,
    ) -> bool:
        known = [(one.sql, one.for_cursor()) for one in statements if one is not None]
        if len(known) < len(statements):
            return False
        if commit:
            self._commit(connection, driver, known, rows, raw_cursor)
            return True
        if not driver.autocommit:
            # Otherwise psycopg's cursor would begin a transaction.
            base.set_options(connection, isolation_level="AUTOCOMMIT")
        cursor = raw_cursor(driver)
        [(sql, values)] = known
        _done(connection, cursor.execute(sql, values, binary=as_bytes))
        rows.append(_done(connection, cursor.fetchall()))
        return True

    def end(self, connection: Any, run: RunInLoop) -> None:
        pool = getattr(connection, "_pool", None)
        connection.pgconn.finish()
        # The pool replaces a connection that comes back ended.
        if pool is not None and (waiting := pool.putconn(connection)) is not None:
            run(waiting)

    def listener(self, connection: Any, run: RunInLoop) -> SocketListener:  # noqa: ARG002 - libpq needs no loop
        return _LibpqListener(connection.pgconn)


def _cursor(driver: Any) -> Any:
    return driver.cursor(row_factory=tuple_row)


class _Pipeline:
    """The cursors of statements and a COMMIT in pipeline mode, and the error that ended them."""

    def __init__(self, driver: Any, cursor: Callable[[Any], Any]) -> None:
        self.driver = driver
        self._cursor = cursor
        self._cursors: list[Any] = []
        self.failure: BaseException | None = None

    def cursor(self) -> Any:
        self._cursors.append(self._cursor(self.driver))
        return self._cursors[-1]

    def answered(self, statements: int) -> list[Any]:
        return [cursor for cursor in self._cursors[:statements] if cursor.pgresult is not None]

    def fail(self, error: BaseException) -> None:
        if self.failure is None or not isinstance(error, psycopg.Error):
            self.failure = error

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch psycopg's waits, and note why the server ends the connection, since psycopg might forget the reason."""
        driver = self.driver
        wait = driver.wait

        def watching(answers: Any, *arguments: Any, **options: Any) -> Any:
            with self._ending(answers):
                return wait(answers, *arguments, **options)

        async def awatching(answers: Any, *arguments: Any, **options: Any) -> Any:
            with self._ending(answers):
                return await wait(answers, *arguments, **options)

        driver.wait = awatching if iscoroutinefunction(wait) else watching
        driver.add_notice_handler(self._hear)
        try:
            yield
        finally:
            driver.remove_notice_handler(self._hear)
            del driver.wait

    def see_results(self, pipeline: Any) -> None:
        """Note refusals among the results of psycopg's pipeline, which forgets them if the connection ends next."""
        # A private method, since there is no public one.
        process = pipeline._process_results  # noqa: SLF001

        def processing(queued: Any, results: list[Any]) -> None:
            self._see(results)
            process(queued, results)

        pipeline._process_results = processing  # noqa: SLF001

    def _see(self, results: list[Any]) -> None:
        if refusal := failure_of(results, self.driver):
            self.fail(refusal)

    def _hear(self, diagnostic: Any) -> None:
        """Note why the server ends the connection. The reason comes as a notice if no statement was sent yet."""
        if diagnostic.severity_nonlocalized == "FATAL":
            self.fail(psycopg.errors.lookup(diagnostic.sqlstate)(diagnostic.message_primary))

    @contextmanager
    def _ending(self, answers: Any) -> Iterator[None]:
        pgconn = self.driver.pgconn
        try:
            yield
        except psycopg.Error:
            if pgconn.status != ConnStatus.OK:
                self._see(last_words(pgconn, len(self._cursors)))
            raise
        except BaseException:
            # An interrupt must not wait for the server, which the generator would do when it is closed.
            give_up(self.driver)
            pgconn.finish()
            with suppress(Exception):
                answers.close()
            raise


async def _commit_with(pipeline: _Pipeline, statements: Sequence[tuple[str, Any]], rows: list[Sequence[Any]]) -> None:
    """Send *statements* and COMMIT, and append their rows to *rows*. On a sync connection, block and never suspend."""
    driver = pipeline.driver
    try:
        with pipeline.watched():
            async with _entered(driver.pipeline()) as entered:
                pipeline.see_results(entered)
                try:
                    for statement, parameters in statements:
                        await _ended(pipeline.cursor().execute(statement, parameters))
                    # Not psycopg's commit(), which could wait for ever in a pipeline after a statement of megabytes: it
                    # waits for results although the end of the statement is not sent yet.
                    await _ended(pipeline.cursor().execute("commit", prepare=False))
                except Exception as error:  # noqa: BLE001 - raised below, when the pipeline has ended
                    pipeline.fail(error)
    except Exception as error:  # noqa: BLE001
        pipeline.fail(error)
    rows += [await _ended(cursor.fetchall()) for cursor in pipeline.answered(len(statements))]
    if pipeline.failure is not None:
        if driver.pgconn.pipeline_status != PipelineStatus.OFF:
            # A connection that the server ended before the last answer cannot leave pipeline mode. Close it, so that
            # SQLAlchemy takes the error for a disconnect.
            await _ended(driver.close())
        raise pipeline.failure


@asynccontextmanager
async def _entered(manager: Any) -> AsyncIterator[Any]:
    if hasattr(manager, "__aenter__"):
        async with manager as entered:
            yield entered
    else:
        with manager as entered:
            yield entered


async def _ended(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


class _LibpqListener(SocketListener):
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket = connection.socket

    def _execute(self, sql: str) -> list[str]:
        result = self._connection.exec_(sql.encode())
        if result.status not in _FINE:
            raise ConnectionError(f"cannot {sql}: {result.error_message.decode(errors='replace')}")
        return [result.get_value(row, 0).decode() for row in range(result.ntuples)]

    def received(self) -> list[str]:
        payloads = []
        while (notification := self._connection.notifies()) is not None:
            payloads.append(notification.extra.decode(errors="replace"))
        return payloads

    def _consume(self) -> None:
        self._connection.consume_input()
