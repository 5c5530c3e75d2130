"""Listeners of an engine: ours of ``do_execute``, which sends a statement in SQLAlchemy's place, and others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import event
from sqlalchemy.engine.default import DefaultDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection, CursorResult, Dialect, Executable
    from sqlalchemy.engine.interfaces import DBAPICursor, ExceptionContext, ExecutionContext

    Send = Callable[[str, Any], None]
    Note = Callable[[BaseException], None]

_OPTION = "sqlalchemy_fairqueue_send"

_notes: WeakKeyDictionary[Connection, Note] = WeakKeyDictionary()
# Those that call _handle_error.
_telling: WeakSet[Dialect] = WeakSet()
# Those that call _do_execute. An engine with other execution options has the same.
_listening: WeakSet[Dialect] = WeakSet()


def execute_by(
    connection: Connection, statement: Executable, parameters: Mapping[str, Any], send: Send
) -> CursorResult[Any]:
    """Let SQLAlchemy execute a statement with all of its events, and *send* do what a cursor would.

    *send* gets the statement and its parameters as a cursor would, and raises as a cursor would.
    """
    dialect = connection.dialect
    if dialect not in _listening:
        event.listen(dialect, "do_execute", _do_execute)
        _listening.add(dialect)
    return connection.execute(statement, parameters, execution_options={_OPTION: send})


def fail_as_executed(connection: Connection, statement: str, parameters: Any, error: BaseException) -> NoReturn:
    """Raise what a driver raised as if SQLAlchemy had executed the statement: it lets a broken connection go.

    This has no public name. A statement that is executed for it would need a cursor, which a closed connection has not.
    """
    handle: Callable[..., NoReturn] = connection._handle_dbapi_exception  # noqa: SLF001
    handle(error, statement, parameters, None, None)


def note_failures(connection: Connection, note: Note) -> None:
    """Let *note* be called with each error of the driver on a connection, as SQLAlchemy raises it."""
    dialect = connection.dialect
    if dialect not in _telling:
        event.listen(dialect, "handle_error", _handle_error)
        _telling.add(dialect)
    _notes[connection] = note


def executes_itself(dialect: Dialect) -> bool:
    """Whether nobody else executes the statements of a dialect in a way of their own."""
    own: Any = dialect.do_execute
    return getattr(own, "__func__", None) is DefaultDialect.do_execute and all(
        listener is _do_execute for listener in dialect.dispatch.do_execute
    )


def is_watched(connection: Connection) -> bool:
    """Whether anybody would miss what SQLAlchemy does around a statement: listeners of its events, or its log."""
    # The flag that SQLAlchemy asks before each event, for the events themselves take longer than a statement. Without
    # the flag everybody counts as watched.
    engine = connection.engine
    return bool(
        getattr(engine, "_has_events", True)
        or getattr(connection, "_has_events", True)
        or engine.logger.isEnabledFor(logging.INFO)
        or not executes_itself(connection.dialect)
    )


def _handle_error(context: ExceptionContext) -> None:
    note = None if context.connection is None else _notes.get(context.connection)
    if note is not None:
        note(context.sqlalchemy_exception or context.original_exception)


def _do_execute(cursor: DBAPICursor, statement: str, parameters: Any, context: ExecutionContext) -> bool:  # noqa: ARG001 - as SQLAlchemy calls it
    send: Send | None = context.execution_options.get(_OPTION)
    if send is None:
        return False
    send(statement, parameters)
    return True
