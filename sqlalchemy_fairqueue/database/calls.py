"""Calls of SQL functions by name: statements that are made once, and their rows.

The parameters of a function and its columns, with their types, are those that its ``.sql`` file says.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from sqlalchemy import TextClause, TextualSelect, TwoPhaseTransaction, column, text
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.exc import StatementError

from sqlalchemy_fairqueue.database.drivers import NumberedStatement, driver_of, is_in_autocommit
from sqlalchemy_fairqueue.database.errors import refuse
from sqlalchemy_fairqueue.database.hooks import fail_as_executed, is_watched
from sqlalchemy_fairqueue.sql import quoted, signature
from sqlalchemy_fairqueue.times import any_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.drivers import Driver

Q = TypeVar("Q", bound="str | None")

_OPTION = "sqlalchemy_fairqueue_alone"
ALONE: Mapping[str, Any] = MappingProxyType({_OPTION: True})
"""Options of a connection where each statement is a transaction of its own."""
once_a_schema = lru_cache(maxsize=256)
"""Keep what a function makes for each of the schemas that were used last: an application may have one a tenant."""


@dataclass(frozen=True, slots=True)
class Target:
    """A queue in a database.

    Attributes:
        schema: Where the queue is installed; None: found through the search_path.
        queue: Name of the queue.
        bind_arguments: How a session with several engines finds the one that holds the queue.
        notify: Whether transactions may wake waiting consumers.
    """

    schema: str | None
    queue: str
    bind_arguments: Mapping[str, Any] | None = field(default=None, compare=False)
    notify: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A statement that is made once a schema, so that SQLAlchemy's cache finds it.

    Attributes:
        statement: The statement.
        types: The SQL types of its parameters.
    """

    statement: TextClause | TextualSelect
    types: Mapping[str, str] = field(default_factory=dict)
    _numbered: list[tuple[NumberedStatement, Sequence[str]]] = field(default_factory=list)
    _encoders: dict[str, list[tuple[str, Callable[[Any], Any]]]] = field(default_factory=dict)

    def encoded(self, driver: Driver, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Parameters as a driver sends them."""
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

    def numbered(self, driver: Driver, parameters: Mapping[str, Any]) -> tuple[NumberedStatement, list[Any]]:
        """The statement with numbered parameters, and these in their order, as a driver sends them."""
        if not self._numbered:
            dialect: Any = PGDialect
            compiled: Any = self.statement.compile(dialect=dialect(paramstyle="numeric_dollar"))
            self._numbered.append((NumberedStatement(str(compiled), str(compiled).encode()), compiled.positiontup))
        statement, names = self._numbered[0]
        encoded = self.encoded(driver, parameters)
        return statement, [encoded[name] for name in names]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Another way to call a function than to select all that it returns. In its texts ``fairqueue.`` is the schema.

    Attributes:
        columns: What to select. None: all columns that the function returns.
        condition: What stands after the function.
        before: A function that is called before, in the same statement. It has the first parameter in common.
        alone: Arrays of one element, which is the parameter then: the driver takes several times as long for an array
            as for a value.
        each: The parameter that is an array, of which each element is one call; the column "place" is the element's,
            from 1.
        readable: Texts come as bytes in UTF-8: one that the connection's encoding lacks would cost all rows.
    """

    columns: Sequence[str] | None = None
    condition: str = ""
    before: str = ""
    alone: Collection[str] = ()
    each: str = ""
    readable: bool = False


ALL = Shape()
READABLE = Shape(readable=True)
_EACH_QUEUE = Shape(each="queue", readable=True)


class Call(NamedTuple):
    """A call of a function with its parameters, to be sent.

    Attributes:
        clause: The statement.
        parameters: Its parameters.
        doing: What it does, for an error's message: ``"dequeue from queue 'documents'"``.
    """

    clause: Clause
    parameters: Mapping[str, Any]
    doing: str

    def rows(self, connection: Connection, *, as_bytes: bool = False) -> Sequence[Any]:
        """Send it; return its rows.

        Args:
            connection: Where it is executed.
            as_bytes: Whether it has bytea columns.

        Raises:
            FairQueueError: The database refused it with an SQLSTATE that has a class.
        """
        driver = driver_of(connection)
        if _is_alone(connection) and not is_in_autocommit(connection):
            connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            with driver.bytes_results(connection) if as_bytes else nullcontext():
                return connection.execute(self.clause.statement, self.clause.encoded(driver, self.parameters)).all()
        except StatementError as error:
            refuse(error, self.doing)

    def value(self, connection: Connection) -> Any:
        """Send it; return the first value of its only row."""
        [row] = self.rows(connection)
        return row[0]

    def tuples(self, connection: Connection, *, as_bytes: bool = False) -> Sequence[Sequence[Any]]:
        """Send it as :meth:`rows`, past SQLAlchemy where nobody watches, in half of the time; the rows have no names.

        That is on a connection with :data:`ALONE`. Its errors are those that SQLAlchemy raises.
        """
        driver = driver_of(connection)
        if driver.passes_sqlalchemy and _is_alone(connection) and not is_watched(connection):
            statement, values = self.clause.numbered(driver, self.parameters)
            try:
                rows = driver.fetch_alone(connection, statement, values, as_bytes=as_bytes)
            except BaseException as error:  # noqa: BLE001 - raised again by SQLAlchemy, which knows what to do then
                try:
                    self.reraise(connection, error)
                except StatementError as found:
                    refuse(found, self.doing)
            if rows is not None:
                return rows
        return self.rows(connection, as_bytes=as_bytes)

    def reraise(self, connection: Connection, error: BaseException) -> NoReturn:
        """Raise what a driver raised as if SQLAlchemy had executed the call: it lets a broken connection go.

        What interrupted the call is raised as it is.
        """
        if isinstance(error, connection.dialect.loaded_dbapi.Error):
            statement, _ = self.clause.numbered(driver_of(connection), self.parameters)
            fail_as_executed(connection, statement.sql, self.parameters, error)
        let_go(connection, error)
        raise error


def call(schema: str | None, function: str, doing: str, shape: Shape = ALL, /, **values: Any) -> Call:
    """Return the call of a function in a schema; all of its parameters are given by their names without ``p_``.

    Each is passed in its position and with its exact type: no function that another role has added under the same name
    fits as well.

    Raises:
        TypeError: They are not those of the function.
    """
    clauses = _clauses(schema)
    clause = clauses.get((function, shape))
    if clause is None:
        clause = clauses.setdefault((function, shape), clause_of(schema, function, shape))
    if values.keys() != clause.types.keys():
        problem = f"{function} takes {', '.join(clause.types)}; got {', '.join(values)}"
        raise TypeError(problem)
    return Call(clause, values, doing)


def read(
    connection: Connection, schema: str | None, function: str, doing: str, shape: Shape = READABLE, /, **values: Any
) -> list[dict[str, Any]]:
    """Send the call of a function that people read; return its rows by the names of its columns.

    Texts are texts, whatever the connection's encoding lacks. What ends in ``_at``, ``_until`` or ``_since`` is a
    datetime in UTC.
    """
    rows = call(schema, function, doing, shape, **values).rows(connection, as_bytes=True)
    columns = [(name, _reader(name, type_)) for name, type_ in signature(function).columns.items()]
    if shape.each:
        columns.append(("place", None))
    return [
        {
            name: value if value is None or reader is None else reader(value)
            for (name, reader), value in zip(columns, row, strict=True)
        }
        for row in rows
    ]


def read_by_queue(
    connection: Connection, schema: str | None, function: str, doing: str, queues: Sequence[Q], /, **values: Any
) -> dict[Q, list[dict[str, Any]]]:
    """Call a function for each of several queues, by one statement; return the rows of each, as :func:`read` does."""
    found: dict[Q, list[dict[str, Any]]] = {queue: [] for queue in queues}
    for row in read(connection, schema, function, doing, _EACH_QUEUE, queue=list(queues), **values):
        found[queues[row.pop("place") - 1]].append(row)
    return found


def _reader(name: str, type_: str) -> Callable[[Any], Any] | None:
    if type_ == "text":
        return _text
    return any_instant if type_ == "bigint" and name.endswith(("_at", "_until", "_since")) else None


def _text(value: bytes) -> str:
    return str(value, "utf-8", "replace")


@once_a_schema
def _clauses(schema: str | None) -> dict[tuple[str, Shape], Clause]:  # noqa: ARG001 - its key
    """The clauses that were made for a schema."""
    return {}


def clause_of(schema: str | None, function: str, shape: Shape = ALL) -> Clause:
    """Make the statement that calls a function."""
    qualified = qualifier(schema)
    found = signature(function)
    before = signature(shape.before).parameters if shape.before else {}
    types = {**found.parameters, **before}
    types |= {name: types[name].removesuffix("[]") for name in shape.alone}
    given = {name: argument(name, type_, alone=name in shape.alone) for name, type_ in types.items()}
    source = f"{qualified}{function}"
    if shape.before:
        shared = next(iter(found.parameters))
        earlier = f"{qualified}{shape.before}({', '.join(given[name] for name in before)})"
        # It is volatile, so that it is called, and once; the other one waits for its row.
        source = f"(select {given[shared]} as {shared}, {earlier} as done) f cross join lateral {source}"
        given[shared] = f"f.{shared}"
    # Where columns have names, SQLAlchemy remembers the shape of rows, else it works the shape out at each call.
    columns = [one.replace("fairqueue.", qualified) for one in shape.columns or ()]
    if shape.columns is None:
        columns = [
            f"pg_catalog.convert_to({name}, 'UTF8') as {name}" if shape.readable and type_ == "text" else name
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
    """The schema as it stands before a name of ours; nothing where the search_path finds it."""
    # text() takes :word for a parameter, also in quotes.
    return "" if schema is None else quoted(schema).replace(":", "\\:") + "."


def argument(name: str, type_: str, *, alone: bool = False) -> str:
    """A parameter of its type. *alone*: the one element of an array."""
    one = f"cast(:{name} as {type_})"
    return f"array[{one}]" if alone else one


def named(queues: Sequence[str]) -> str:
    """Queues as an error names them: ``queue 'documents'``, ``3 queues``."""
    return f"queue {queues[0]!r}" if len(queues) == 1 else f"{len(queues):,} queues"


def may_notify(connection: Connection, notify: bool) -> bool:  # noqa: FBT001 - passed on from the keyword
    """Whether a transaction that is allowed to notify can: PREPARE TRANSACTION refuses one that has."""
    return notify and not isinstance(connection.get_transaction(), TwoPhaseTransaction)


def let_go(connection: Connection, error: BaseException) -> None:
    """Let the driver's connection go, unless the server has answered all that was sent before the error."""
    if not connection.invalidated and driver_of(connection).give_up(connection):
        connection.invalidate(error)


def _is_alone(connection: Connection) -> bool:
    return _OPTION in connection.get_execution_options()
