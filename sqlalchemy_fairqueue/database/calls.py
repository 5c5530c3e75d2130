"""Builds calls of SQL functions by name, and sends them.

As a rule SQLAlchemy sends a call, so that SQLAlchemy's events fire. ``Link.commit_with`` bypasses SQLAlchemy. So does
``Call.tuples``, for calls that are transactions of their own. The bypass halves a call's time. It is not used if
events have listeners, if statements are logged, or if the driver does not support the bypass.

``Link.commit_with`` sends the last calls of a transaction and COMMIT in one round trip. Python sees the calls' outcomes
only after the COMMIT. So if an outcome must not be committed, the call itself fails, by ``fq_refuse``.
"""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Connection, Dialect, Pool, TextClause, TextualSelect, TwoPhaseTransaction, column, event, text
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import StatementError

from sqlalchemy_fairqueue.database.drivers import Driver, NumberedStatement, driver_of, driver_of_dialect, set_options
from sqlalchemy_fairqueue.database.errors import refusal_of, refuse
from sqlalchemy_fairqueue.errors import AutocommitError, FairQueueError
from sqlalchemy_fairqueue.sql.files import signature
from sqlalchemy_fairqueue.sql.schema import quoted
from sqlalchemy_fairqueue.times import any_instant, duration, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.policies import RATE, fields_of_columns, rate_of_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlalchemy.engine import Transaction
    from sqlalchemy.engine.interfaces import DBAPICursor, ExceptionContext, ExecutionContext

    Send = Callable[[str, Any], None]
    Note = Callable[[BaseException], None]
    Encode = Callable[[Any], Any]
    Numbered = tuple[NumberedStatement, Sequence[str], Sequence[tuple[int, Encode]]]

once_a_schema = lru_cache(maxsize=256)
"""Cache a function's results for the last 256 schemas, since an application may have a schema for each tenant."""


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A statement that is made once for each schema, so that SQLAlchemy's cache finds it."""

    statement: TextClause | TextualSelect
    types: Mapping[str, str] = field(default_factory=dict)
    _encoders: dict[str, list[tuple[str, Encode]]] = field(default_factory=dict)
    numbered: dict[str, Numbered] = field(default_factory=dict)

    def encoded(self, driver: Driver, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        encoders = self._encoders.get(driver.name)
        if encoders is None:
            found = driver.encoders
            encoders = [(name, found[type_]) for name, type_ in self.types.items() if type_ in found]
            self._encoders[driver.name] = encoders
        if not encoders:
            return parameters
        encoded = dict(parameters)
        for name, encode in encoders:
            if encoded[name] is not None:
                encoded[name] = encode(encoded[name])
        return encoded

    def number(self, driver: Driver) -> Numbered:
        # Imported only here, since it takes long, and an engine imports it anyway.
        from sqlalchemy.dialects.postgresql.base import PGDialect  # noqa: PLC0415

        dialect: Any = PGDialect
        compiled: Any = self.statement.compile(dialect=dialect(paramstyle="numeric_dollar"))
        statement = NumberedStatement(str(compiled), str(compiled).encode())
        names, found = compiled.positiontup, driver.encoders
        types = [self.types[name] for name in names]
        encoders = [(index, found[type_]) for index, type_ in enumerate(types) if type_ in found]
        self.numbered[driver.name] = statement, names, encoders
        return self.numbered[driver.name]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """How a statement selects from a function. In *columns* and *condition*, ``fairqueue.`` stands for the schema.

    Attributes:
        columns: The columns to select; None for all.
        condition: SQL that follows the call of the function, such as a ``where``.
        before: A function that the statement calls first, with the same first parameter.
        alone: Array parameters that get one element. Calls give the element itself, which drivers encode faster.
        named: The name of the parameter for message ids, if the statement finds the ids. Calls then give the parameters
            of ``fq_find_named``, not the ids. A parameter for one id, or one in *alone*, gets only the first id found.
        each: A parameter for which calls give an array. The statement calls the function once for each element. The
            column ``place`` has the position of the element, from 1.
        readable: Whether texts are returned as UTF-8 bytes, so that they can be read whatever the client encoding is.
    """

    columns: Sequence[str] | None = None
    condition: str = ""
    before: str = ""
    alone: Collection[str] = ()
    named: str = ""
    each: str = ""
    readable: bool = False


ALL = Shape()
READABLE = Shape(readable=True)
EACH_QUEUE = Shape(each="queue", readable=True)


# Enough for all functions in as many schemas as once_a_schema remembers.
@lru_cache(maxsize=25_600)
def clause_of(schema: str | None, function: str, shape: Shape = ALL) -> Clause:
    qualified = qualifier(schema)
    found = signature(function)
    before = signature(shape.before).parameters if shape.before else {}
    types = {**found.parameters, **before}
    types |= {name: types[name].removesuffix("[]") for name in shape.alone}
    given = {name: argument(name, type_, alone=name in shape.alone) for name, type_ in types.items()}
    source = f"{qualified}{function}"
    if shape.named:
        names = signature("fq_find_named").parameters
        arguments = ", ".join(argument(name, type_) for name, type_ in names.items())
        ids = f"select message_id from {qualified}fq_find_named({arguments})"  # noqa: S608 (quoted)
        ids = f"array({ids})" if types.pop(shape.named).endswith("[]") else f"({ids} limit 1)"
        given[shape.named] = f"array[{ids}]" if shape.named in shape.alone else ids
        types |= names
    if shape.before:
        shared = next(iter(found.parameters))
        earlier = f"{qualified}{shape.before}({', '.join(given[name] for name in before)})"
        # The function to call first is volatile. So PostgreSQL calls it exactly once, and needs the row of that call
        # before it calls the main function.
        source = f"(select {given[shared]} as {shared}, {earlier} as done) f cross join lateral {source}"
        given[shared] = f"f.{shared}"
    # If SQLAlchemy is told the columns, it caches how to read rows; otherwise it works that out at each call.
    columns = [one.replace("fairqueue.", qualified) for one in shape.columns or ()]
    if shape.columns is None:
        as_bytes = {"text", "jsonb"} if shape.readable else set()
        columns = [
            f"pg_catalog.convert_to(cast({name} as text), 'UTF8') as {name}" if type_ in as_bytes else name
            for name, type_ in found.columns.items()
        ]
    if shape.each:
        types[shape.each] += "[]"
        elements = argument(shape.each, types[shape.each])
        source = f"pg_catalog.unnest({elements}) with ordinality e (element, place) cross join lateral {source}"
        given[shape.each] = "e.element"
        columns.append("place")
    arguments = ", ".join(given[name] for name in found.parameters)
    condition = shape.condition.replace("fairqueue.", qualified)
    statement = text(f"select {', '.join(columns) or '1'} from {source}({arguments}){condition}")  # noqa: S608 (quoted)
    return Clause(statement.columns(*(column(one.split()[-1]) for one in columns)) if columns else statement, types)


def qualifier(schema: str | None) -> str:
    # text() takes :word for a parameter, also in quotes.
    return "" if schema is None else quoted(schema).replace(":", "\\:") + "."


def argument(name: str, type_: str, *, alone: bool = False) -> str:
    one = f"cast(:{name} as {type_})"
    return f"array[{one}]" if alone else one


Q = TypeVar("Q", bound="str | None")
T = TypeVar("T")
Row = dict[str, Any]

_ALONE = "sqlalchemy_fairqueue_alone"
AT_ONCE: Mapping[str, Any] = MappingProxyType({"stream_results": False, "yield_per": None})
"""Options against cursors of the server, which an engine may ask for, and which need a transaction."""
ALONE: Mapping[str, Any] = MappingProxyType({_ALONE: True, **AT_ONCE})
"""Options of a connection where each statement is a transaction of its own."""
_REFUSED = "QF010"
_SEND = "sqlalchemy_fairqueue_send"
_INSTANTS = ("at", "_until", "_since")
_DURATIONS = {"every", "jitter", "oldest_wait"}

usable_schemas: WeakKeyDictionary[Pool, set[str | None]] = WeakKeyDictionary()
"""For each pool, the schemas that are known to be usable. Engines that differ in execution options share a pool."""

_notes: WeakKeyDictionary[Connection, Note] = WeakKeyDictionary()
# Dialects whose errors call _handle_error.
_telling: WeakSet[Dialect] = WeakSet()
# Dialects that call _do_execute. Engines that differ only in execution options share a dialect.
_listening: WeakSet[Dialect] = WeakSet()


@dataclass(frozen=True, slots=True)
class Target:
    """A queue in a database.

    Attributes:
        schema: The schema of the installation; None if the search_path finds it.
        bind_arguments: How a session with several engines finds the engine of the queue.
        notify: Whether transactions may wake waiting consumers.
        policy: The policy that new channels start with, as JSON with columns as keys; None means ``ChannelPolicy()``.
            The policy is not used if defaults or a default plan are configured for the queue.
    """

    schema: str | None
    queue: str
    bind_arguments: Mapping[str, Any] | None = field(default=None, compare=False)
    notify: bool = field(default=True, compare=False)
    policy: str | None = field(default=None, compare=False)

    def call(self, function: str, doing: str, shape: Shape = ALL, /, **values: Any) -> Call:
        return call(self.schema, function, doing, shape, queue=self.queue, **values)

    def read(
        self, connection: Connection, function: str, doing: str, kind: Callable[..., T], /, **values: Any
    ) -> list[T]:
        return read(connection, self.schema, function, doing, kind, queue=self.queue, **values)


class Call(NamedTuple):
    """A call of a SQL function. Errors describe it by *doing*, such as ``dequeue from``, and then name the queue."""

    clause: Clause
    parameters: Mapping[str, Any]
    doing: str

    def described(self) -> str:
        queue = self.parameters.get("queue")
        return self.doing if queue is None else f"{self.doing} {named(queue, self.parameters.get('channel'))}"

    def rows(self, connection: Connection, *, as_bytes: bool = False) -> Sequence[Any]:
        """Send the call by SQLAlchemy and return its rows. In a two-phase transaction the call notifies nobody.

        Set *as_bytes* if rows have bytea columns. A call that the database refuses raises as :func:`refuse` says.
        """
        driver = driver_of(connection)
        if _ALONE in connection.get_execution_options() and not is_in_autocommit(connection):
            set_options(connection, isolation_level="AUTOCOMMIT")
        try:
            parameters = self.clause.encoded(driver, self.parameters)
            if parameters.get("notify") and not can_notify(connection):
                parameters = {**parameters, "notify": False}
            with driver.bytes_results(connection) if as_bytes else nullcontext():
                return connection.execute(self.clause.statement, parameters).all()
        except StatementError as error:
            refuse(error, self.described(), self.parameters)

    def value(self, connection: Connection) -> Any:
        [row] = self.rows(connection)
        return row[0]

    def tuples(self, connection: Connection, *, as_bytes: bool = False) -> Sequence[Sequence[Any]]:
        """Do as :meth:`rows`. If the connection has the options :data:`ALONE`, try to bypass SQLAlchemy."""
        rows: list[Sequence[Any]] = []
        try:
            if _ALONE in connection.get_execution_options():
                driver = driver_of(connection)
                if executes_itself(connection.dialect) and _sent_past(
                    connection, driver, [self], rows, as_bytes=as_bytes
                ):
                    return rows[0]
        except StatementError as error:
            refuse(error, self.described(), self.parameters)
        return self.rows(connection, as_bytes=as_bytes)


def call(schema: str | None, function: str, doing: str, shape: Shape = ALL, /, **values: Any) -> Call:
    """Return the call of a function in a schema. *values* must have all parameters by name, without ``p_``.

    Each parameter is sent with its exact type, so that PostgreSQL never chooses an overload that another role created.
    """
    clause = clause_of(schema, function, shape)
    if values.keys() != clause.types.keys():
        raise TypeError(f"{function} takes {', '.join(clause.types)}; got {', '.join(values)}")
    for name, value in values.items():
        if isinstance(value, datetime):
            values[name] = instant_microseconds(value)
        elif isinstance(value, timedelta):
            values[name] = microseconds(value)
    return Call(clause, values, doing)


def read(  # noqa: PLR0917 - parameters of functions have all other names
    connection: Connection,
    schema: str | None,
    function: str,
    doing: str,
    kind: Callable[..., T],
    shape: Shape = READABLE,
    /,
    **values: Any,
) -> list[T]:
    """Call a function whose rows people read, and return the result of *kind* for each row, with columns as keywords.

    Texts are read whatever the connection's encoding is. Columns that are named as instants (``due_at``) become
    datetimes in UTC. Columns that are named as durations (``every``) become timedeltas. The columns of a rate become
    one ``rate``. Arrays become tuples. In ``overridden``, names of policy columns become names of policy fields.
    """
    rows = call(schema, function, doing, shape, **values).rows(connection, as_bytes=True)
    columns = [(name, _reader(name, type_)) for name, type_ in signature(function).columns.items()]
    if shape.each:
        columns.append(("place", None))
    return [kind(**_columns(columns, row)) for row in rows]


def read_by_queue(  # noqa: PLR0917 - as above
    connection: Connection,
    schema: str | None,
    function: str,
    doing: str,
    kind: Callable[..., T],
    queues: Sequence[Q],
    /,
    **values: Any,
) -> dict[Q, list[T]]:
    """Do for several queues what :func:`read` does for one, in one statement; *kind* also gets a keyword ``queue``."""
    found: dict[Q, list[T]] = {queue: [] for queue in queues}
    for row in read(connection, schema, function, doing, Row, EACH_QUEUE, queue=list(queues), **values):
        queue = queues[row.pop("place") - 1]
        found[queue].append(kind(queue=queue, **row))
    return found


def _columns(columns: Sequence[tuple[str, Callable[[Any], Any] | None]], row: Sequence[Any]) -> dict[str, Any]:
    found = {
        name: value if value is None or reader is None else reader(value)
        for (name, reader), value in zip(columns, row, strict=True)
    }
    if "rate_interval" in found:
        found["rate"] = rate_of_columns({name: found.pop(name) for name in RATE})
    return found


def _reader(name: str, type_: str) -> Callable[[Any], Any] | None:
    if type_ == "text":
        return _text
    if type_ == "jsonb":
        return json.loads
    if type_.endswith("[]"):
        return fields_of_columns if name == "overridden" else tuple
    if type_ == "bigint" and name.endswith(_INSTANTS):
        return any_instant
    return duration if name in _DURATIONS else None


def _text(value: bytes) -> str:
    return str(value, "utf-8", "replace")


class Link:
    """A connection that the operations of a transaction share, with facts about it that are looked up only once."""

    __slots__ = ("connection", "driver", "usable")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        dialect = connection.dialect
        self.driver = driver_of_dialect(dialect.name, dialect.driver)
        self.usable: Collection[str | None] = usable_schemas.get(connection.engine.pool, ())

    def transaction(self) -> Transaction:
        """Return the connection's transaction, or begin one. A connection in AUTOCOMMIT raises AutocommitError."""
        connection = self.connection
        # As is_in_autocommit() does, without the time of a call.
        if getattr(connection.connection.dbapi_connection, "autocommit", False):
            raise AutocommitError(
                f"the connection to {connection.engine.url.render_as_string()} is in AUTOCOMMIT, where queue work "
                "would not be atomic with the business writes; use an engine or session without "
                "isolation_level='AUTOCOMMIT'"
            )
        return connection.get_transaction() or connection.begin()

    def can_commit_with(self) -> bool:
        """Return whether statements can be sent together with COMMIT. Do not ask this about a two-phase transaction."""
        connection, dialect = self.connection, self.connection.dialect
        return (
            not connection.invalidated
            and not connection.dispatch.commit
            and executes_itself(dialect)
            and type(dialect).do_commit is DefaultDialect.do_commit
            and self.driver.can_commit_with(connection)
        )

    def commit_with(self, calls: Sequence[Call]) -> list[Sequence[Any]]:
        """Send calls and COMMIT in one round trip, and return the rows of each call. Ask :meth:`can_commit_with` first.

        SQLAlchemy's own commit then has nothing to do. After an error the caller must roll back as usual.

        Raises:
            CommitRefused: A call had an outcome that must not be committed.
            FairQueueError: The database refused a call with an SQLSTATE for which this library has an error class.
        """
        rows: list[Sequence[Any]] = []
        connection = self.connection
        try:
            if not _sent_past(connection, self.driver, calls, rows, commit=True):
                _send(connection, self.driver, calls, rows)
        except StatementError as error:
            index = len(rows)
            if index == len(calls):
                # The COMMIT itself failed.
                error.statement = error.params = None
                raise
            refusal = refusal_of(error)
            if refusal.sqlstate == _REFUSED:
                raise CommitRefused(index, json.loads(refusal.detail or "")) from error
            refuse(error, calls[index].described(), calls[index].parameters)
        except BaseException as error:
            # A signal handler or the cancel of a task interrupted the call; nobody knows whether it was committed.
            let_go(connection, error)
            raise
        return rows


class CommitRefused(FairQueueError):
    """The outcome of a statement forbade the COMMIT that travelled with it; nothing was committed.

    Attributes:
        index: The position of the statement among those that were sent, from 0.
        outcome: "duplicate", "full" or "lost".
        ordinal: The position of the message in its enqueue, from 1; None if the outcome is "lost".
        message_ids: The message that has the key, or the lost messages in ascending order.
        max_backlog: The bound of a full channel.
        holder: The consumer that holds the first of the lost messages now.
    """

    def __init__(self, index: int, detail: dict[str, Any]) -> None:
        super().__init__(f"the transaction cannot be committed: {detail}; roll back")
        self.index = index
        self.outcome: str = detail["outcome"]
        self.ordinal: int | None = detail["ordinal"]
        self.message_ids: list[int] = detail["message_ids"] or []
        self.max_backlog: int | None = detail.get("max_backlog")
        self.holder: str | None = detail.get("holder")


def _sent_past(
    connection: Connection,
    driver: Driver,
    calls: Sequence[Call],
    rows: list[Sequence[Any]],
    *,
    commit: bool = False,
    as_bytes: bool = False,
) -> bool:
    """Send calls past SQLAlchemy and return True; if that is impossible, return False. Raise SQLAlchemy's errors."""
    # Read SQLAlchemy's own flag, since asking the events takes longer than a statement. If SQLAlchemy has no such flag,
    # assume that there are listeners.
    engine = connection.engine
    if (
        not driver.passes_sqlalchemy
        or getattr(engine, "_has_events", True)
        or getattr(connection, "_has_events", True)
        or engine.logger.isEnabledFor(logging.INFO)
    ):
        return False
    statements: list[tuple[NumberedStatement, list[Any]]] = []
    for call in calls:
        statement, names, encoders = call.clause.numbered.get(driver.name) or call.clause.number(driver)
        values = list(map(call.parameters.__getitem__, names))
        for index, encode in encoders:
            if values[index] is not None:
                values[index] = encode(values[index])
        statements.append((statement, values))
    try:
        return driver.send_past(connection, statements, rows, commit=commit, as_bytes=as_bytes)
    except BaseException as error:
        if isinstance(error, connection.dialect.loaded_dbapi.Error):
            index = min(len(rows), len(calls) - 1)
            _fail_as_executed(connection, statements[index][0].sql, calls[index].parameters, error)
        let_go(connection, error)
        raise


def _send(connection: Connection, driver: Driver, calls: Sequence[Call], rows: list[Sequence[Any]]) -> None:
    """Let SQLAlchemy prepare calls and fire its events; let the driver send them with COMMIT, and append to *rows*."""
    dialect = connection.dialect
    if dialect not in _listening:
        event.listen(dialect, "do_execute", _do_execute)
        _listening.add(dialect)
    statements: list[tuple[str, Any]] = []

    def send(statement: str, parameters: Any) -> None:
        statements.append((statement, parameters))
        if len(statements) == len(calls):
            driver.commit_with(connection, statements, rows)

    for one in calls:
        parameters = one.clause.encoded(driver, one.parameters)
        connection.execute(one.clause.statement, parameters, execution_options={_SEND: send})


def _fail_as_executed(connection: Connection, statement: str, parameters: Any, error: BaseException) -> NoReturn:
    """Let SQLAlchemy raise a driver's error as for its own statements, so that it drops a broken connection."""
    # A private method, since no public one works without a cursor.
    handle: Callable[..., NoReturn] = connection._handle_dbapi_exception  # noqa: SLF001
    handle(error, statement, parameters, None, None)


def note_failures(connection: Connection, note: Note) -> None:
    dialect = connection.dialect
    if dialect not in _telling:
        event.listen(dialect, "handle_error", _handle_error)
        _telling.add(dialect)
    _notes[connection] = note


def executes_itself(dialect: Dialect) -> bool:
    """Return whether no listener or subclass replaces how a dialect executes statements."""
    for listener in dialect.dispatch.do_execute:
        if listener is not _do_execute:
            return False
    own: Any = dialect.do_execute
    return getattr(own, "__func__", None) is DefaultDialect.do_execute


def is_in_autocommit(connection: Connection) -> bool:
    # Ask SQLAlchemy's adapter, since the connection of an asyncio driver may not know.
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


def _handle_error(context: ExceptionContext) -> None:
    note = None if context.connection is None else _notes.get(context.connection)
    if note is not None:
        note(context.sqlalchemy_exception or context.original_exception)


def _do_execute(cursor: DBAPICursor, statement: str, parameters: Any, context: ExecutionContext) -> bool:  # noqa: ARG001 - as SQLAlchemy calls it
    send: Send | None = context.execution_options.get(_SEND)
    if send is None:
        return False
    send(statement, parameters)
    return True


def named(queue: str | Sequence[str | None], channel: str | None = None) -> str:
    """Return the words by which errors name one or several queues, or a channel of a queue. [None] means all queues."""
    if isinstance(queue, str):
        return f"queue {queue!r}" if channel is None else f"channel {channel!r} of queue {queue!r}"
    if len(queue) != 1:
        return f"{len(queue):,} queues"
    return "all queues" if queue[0] is None else f"queue {queue[0]!r}"


def can_notify(connection: Connection) -> bool:
    """Return whether the transaction may notify: not if it has two phases, since PREPARE fails after a NOTIFY."""
    return not isinstance(connection.get_transaction(), TwoPhaseTransaction)


def let_go(connection: Connection, error: BaseException) -> None:
    """Drop the driver's connection, unless the server has answered all that was sent before the error."""
    if not connection.invalidated and driver_of(connection).give_up(connection):
        connection.invalidate(error)
