"""psycopg 3, for sync and async engines alike."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache, partial
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.drivers import libpq
from sqlalchemy_fairqueue.database.drivers.base import LITERALS, SocketListener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.drivers.base import RunInLoop


class Psycopg(libpq.OnLibpq):
    """psycopg 3. It listens by libpq itself, whether the connection was made for threads or for asyncio."""

    name = "psycopg"
    example = "create_engine('postgresql+psycopg://...')"
    encoders = LITERALS

    @contextmanager
    def bytes_results(self, connection: Connection) -> Iterator[None]:
        """Ask for results in binary format, for as text a content would be twice as long.

        Its cursors are asked for them one by one, and SQLAlchemy makes the cursors: so the connection makes such
        cursors for as long as one statement takes. An application's own cursors stay what they are.
        """
        driver: Any = connection.connection.driver_connection
        factory = driver.cursor_factory
        driver.cursor_factory = partial(_binary_cursor, factory)
        try:
            yield
        finally:
            driver.cursor_factory = factory

    def commit_with(
        self, connection: Connection, statements: Sequence[tuple[str, Any]], rows: list[Sequence[Any]]
    ) -> None:
        """As for Driver."""
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
            libpq.awaited_on(connection, committing)
        else:
            with suppress(StopIteration):
                committing.send(None)

    def send_by_cursors(
        self,
        connection: Connection,
        driver: Any,
        statements: Sequence[libpq.Given | None],
        rows: list[Sequence[Any]],
        *,
        commit: bool,
        as_bytes: bool,
    ) -> bool:
        """As for OnLibpq."""
        known = [(one.sql, one.for_cursor()) for one in statements if one is not None]
        if len(known) < len(statements):
            return False
        if commit:
            self._commit(connection, driver, known, rows, libpq.raw_cursor)
            return True
        if not driver.autocommit:
            # Its cursor would begin a transaction.
            connection.execution_options(isolation_level="AUTOCOMMIT")
        cursor = libpq.raw_cursor(driver)
        [(sql, values)] = known
        executed = cursor.execute(sql, values, binary=as_bytes)
        if connection.dialect.is_async:
            libpq.awaited_on(connection, executed)
            rows.append(libpq.awaited_on(connection, cursor.fetchall()))
        else:
            rows.append(cursor.fetchall())
        return True

    def end(self, connection: Any, run: RunInLoop) -> None:
        """As for Driver. A pool of psycopg's replaces what comes back ended."""
        pool = getattr(connection, "_pool", None)
        connection.pgconn.finish()
        if pool is not None and (waiting := pool.putconn(connection)) is not None:
            run(waiting)

    def fileno(self, connection: Any) -> int:
        """As for Driver."""
        file: int = connection.fileno()
        return file

    def database_key(self, connection: Any) -> tuple[object, ...]:
        """As for Driver."""
        known = connection.info
        return known.host, known.port, known.dbname, known.user

    def listener(self, connection: Any, run: RunInLoop) -> SocketListener:  # noqa: ARG002 - libpq needs no loop
        """As for Driver."""
        return _LibpqListener(connection.pgconn)


def _cursor(driver: Any) -> Any:
    from psycopg.rows import tuple_row

    return driver.cursor(row_factory=tuple_row)


class _Pipeline:
    """Statements and COMMIT in pipeline mode: their cursors, and what ended them.

    psycopg hands results out in the pipeline already or at its end, as they come. Its own ``commit()`` in a pipeline
    waits for results before the last megabytes of a statement are sent, and so for ever: COMMIT is a statement like the
    others here.
    """

    def __init__(self, driver: Any, cursor: Callable[[Any], Any]) -> None:
        self.driver = driver
        self._cursor = cursor
        self._cursors: list[Any] = []
        self.failure: BaseException | None = None

    def cursor(self) -> Any:
        """Make a cursor for the next statement."""
        self._cursors.append(self._cursor(self.driver))
        return self._cursors[-1]

    def answered(self, statements: int) -> list[Any]:
        """Return the cursors of the first *statements* that the server executed."""
        return [cursor for cursor in self._cursors[:statements] if cursor.pgresult is not None]

    def fail(self, error: BaseException) -> None:
        """Keep an error if it is the first one, or interrupts the wait for answers."""
        if self.failure is None or not isinstance(error, libpq.names().failure):
            self.failure = error

    def is_stuck(self) -> bool:
        """Return whether the connection cannot leave pipeline mode: the server ended before its last answer.

        SQLAlchemy takes an error for a disconnect only if the connection is closed.
        """
        stuck: bool = self.driver.pgconn.pipeline_status != libpq.NO_PIPELINE
        return stuck

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While it is entered, see what ends a wait before psycopg, which waits on, or forgets why the server ended."""
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
        """See all results of psycopg's pipeline: it forgets a refusal if the connection ends behind it."""
        # It has no public name.
        process = pipeline._process_results  # noqa: SLF001

        def processing(queued: Any, results: list[Any]) -> None:
            self._see(results)
            process(queued, results)

        pipeline._process_results = processing  # noqa: SLF001

    def _see(self, results: list[Any]) -> None:
        if refusal := libpq.failure_of(results, self.driver):
            self.fail(refusal)

    def _hear(self, diagnostic: Any) -> None:
        """Keep why the server ends the connection, which is a notice if it comes before the first statement is sent."""
        if diagnostic.severity_nonlocalized == "FATAL":
            self.fail(libpq.names().error_class(diagnostic.sqlstate)(diagnostic.message_primary))

    @contextmanager
    def _ending(self, answers: Any) -> Iterator[None]:
        pgconn = self.driver.pgconn
        try:
            yield
        except libpq.names().failure:
            if not libpq.is_connected(pgconn):
                self._see(libpq.last_words(pgconn, len(self._cursors)))
            raise
        except BaseException:
            # What interrupts a wait must not wait for the server, as the generator would at its end.
            libpq.give_up(self.driver)
            pgconn.finish()
            with suppress(Exception):
                answers.close()
            raise


async def _commit_with(pipeline: _Pipeline, statements: Sequence[tuple[str, Any]], rows: list[Sequence[Any]]) -> None:
    """Send statements and COMMIT. On a connection for threads it waits for nothing: each call has waited itself."""
    driver = pipeline.driver
    try:
        with pipeline.watched():
            async with _entered(driver.pipeline()) as entered:
                pipeline.see_results(entered)
                try:
                    for statement, parameters in statements:
                        await _ended(pipeline.cursor().execute(statement, parameters))
                    await _ended(pipeline.cursor().execute("commit", prepare=False))
                except Exception as error:  # noqa: BLE001 - raised below, when the pipeline has ended
                    pipeline.fail(error)
    except Exception as error:  # noqa: BLE001
        pipeline.fail(error)
    rows += [await _ended(cursor.fetchall()) for cursor in pipeline.answered(len(statements))]
    if pipeline.failure is not None:
        if pipeline.is_stuck():
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


@cache
def _binary_results() -> tuple[tuple[type, ...], Any]:
    """Return psycopg's cursor classes that only give results as text, and the binary format."""
    # The application need not have this driver to have another. Once, for an import costs much of a call.
    from psycopg import AsyncClientCursor, ClientCursor
    from psycopg.pq import Format

    return (ClientCursor, AsyncClientCursor), Format.BINARY


def _binary_cursor(factory: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    text_only, binary = _binary_results()
    cursor = factory(*arguments, **options)
    if not isinstance(cursor, text_only):
        cursor.format = binary
    return cursor


class _LibpqListener(SocketListener):
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket = connection.socket

    def _execute(self, sql: str) -> list[str]:
        result = self._connection.exec_(sql.encode())
        # COMMAND_OK or TUPLES_OK
        if result.status not in {1, 2}:
            raise ConnectionError(f"cannot {sql}: {result.error_message.decode(errors='replace')}")
        return [result.get_value(row, 0).decode() for row in range(result.ntuples)]

    def received(self) -> list[str]:
        payloads = []
        while (notification := self._connection.notifies()) is not None:
            payloads.append(notification.extra.decode(errors="replace"))
        return payloads

    def _consume(self) -> None:
        self._connection.consume_input()
