"""Statements: calls of SQL functions as clauses that are made once, their rows, and their errors as ours."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sqlalchemy import TextClause, TextualSelect, TwoPhaseTransaction, column, text
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.exc import DBAPIError, StatementError

from sqlalchemy_fairqueue.database.drivers import (
    NumberedStatement,
    driver_of,
    hide_row,
    is_in_autocommit,
    refusal_of,
)
from sqlalchemy_fairqueue.database.hooks import fail_as_executed, is_watched
from sqlalchemy_fairqueue.database.migrations import to_install, to_repair
from sqlalchemy_fairqueue.errors import FairQueueError, SchemaMismatch
from sqlalchemy_fairqueue.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.database.drivers import Driver

_OPTION = "sqlalchemy_fairqueue_alone"
ALONE: Mapping[str, Any] = MappingProxyType({_OPTION: True})
"""Options of a connection where each statement is a transaction of its own."""
once_a_schema = lru_cache(maxsize=256)
"""Keep what a function makes for each of the schemas that were used last: an application may have one a tenant."""
# The commas between columns: not those between the arguments of a function.
_between_columns = re.compile(r", (?![^(]*\))")


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


class Call(NamedTuple):
    """A statement with its parameters, to be sent.

    Attributes:
        clause: The statement.
        parameters: Its parameters.
        doing: What it does, for an error's message: ``"dequeue from queue 'documents'"``.
    """

    clause: Clause
    parameters: Mapping[str, Any]
    doing: str


def qualifier(schema: str | None) -> str:
    """The schema as it stands before a name of ours; nothing where the search_path finds it."""
    # text() takes :word for a parameter, also in quotes.
    return "" if schema is None else quoted(schema).replace(":", "\\:") + "."


def call(
    schema: str | None,
    function: str,
    columns: str | Sequence[str],
    first: tuple[str, dict[str, str]] | None = None,
    /,
    *,
    condition: str = "",
    alone: Collection[str] = (),
    each: str = "",
    **types: str,
) -> Clause:
    """A select from a function, each argument a parameter of its type, in the order of the function's parameters.

    Every parameter is passed, in its position and with its exact type: no function that another role has added under
    the same name fits as well.

    Args:
        schema: Of the installation.
        function: The function.
        columns: The columns to select; expressions with nested commas one by one. Where they have names, SQLAlchemy
            remembers the shape of rows, else it works the shape out at each call.
        first: A function that is called before, in the same statement, with its parameters and their types. It has the
            first parameter in common.
        condition: What stands after the function.
        alone: Arrays of one element, which is the parameter then: the driver takes several times as long for an array
            as for a value.
        each: The parameter that is an array, of which each element is one call; "place" is the element's, from 1.
        types: Of the parameters, all of them in their order.
    """
    before, every = first[1] if first else {}, types | (first[1] if first else {})
    every |= {name: every[name].removesuffix("[]") for name in alone}
    given = {name: argument(name, type_, alone=name in alone) for name, type_ in every.items()}
    source = f"{qualifier(schema)}{function}"
    if first:
        shared = next(iter(types))
        earlier = f"{qualifier(schema)}{first[0]}({', '.join(given[name] for name in before)})"
        # It is volatile, so that it is called, and once; the other one waits for its row.
        source = f"(select {given[shared]} as {shared}, {earlier} as done) f cross join lateral {source}"
        given[shared] = f"f.{shared}"
    if each:
        elements = argument(each, f"{types[each]}[]")
        source = f"pg_catalog.unnest({elements}) with ordinality e (element, place) cross join lateral {source}"
        every[each], given[each] = f"{types[each]}[]", "e.element"
    arguments = ", ".join(given[name] for name in types)
    selected = list(_between_columns.split(columns) if isinstance(columns, str) else columns)
    if each:
        selected.append("place")
    clause = text(f"select {', '.join(selected)} from {source}({arguments}){condition}")  # noqa: S608 (quoted)
    names = [one.split()[-1] for one in selected]
    return Clause(clause.columns(*map(column, names)) if all(map(str.isidentifier, names)) else clause, every)


def named(queues: Sequence[str]) -> str:
    """Queues as an error names them: ``queue 'documents'``, ``3 queues``."""
    return f"queue {queues[0]!r}" if len(queues) == 1 else f"{len(queues):,} queues"


def argument(name: str, type_: str, *, alone: bool = False) -> str:
    """A parameter of its type. *alone*: the one element of an array."""
    one = f"cast(:{name} as {type_})"
    return f"array[{one}]" if alone else one


def _is_alone(connection: Connection) -> bool:
    return _OPTION in connection.get_execution_options()


def _settle_isolation(connection: Connection) -> None:
    """Put a connection with :data:`ALONE` into AUTOCOMMIT, for what SQLAlchemy executes."""
    if _is_alone(connection) and not is_in_autocommit(connection):
        connection.execution_options(isolation_level="AUTOCOMMIT")


def fetch_rows(
    connection: Connection, clause: Clause, parameters: Mapping[str, Any], doing: str, *, as_bytes: bool = False
) -> Sequence[Sequence[Any]]:
    """As :func:`fetch`, rows without names: past SQLAlchemy where nobody watches, in half of the time.

    That is on a connection with :data:`ALONE`. Its errors are those that SQLAlchemy raises.
    """
    driver = driver_of(connection)
    if driver.passes_sqlalchemy and _is_alone(connection) and not is_watched(connection):
        statement, values = clause.numbered(driver, parameters)
        try:
            rows = driver.fetch_alone(connection, statement, values, as_bytes=as_bytes)
        except BaseException as error:  # noqa: BLE001 - raised again by SQLAlchemy, which knows what to do then
            fail(connection, clause, parameters, error, doing)
        if rows is not None:
            return rows
    return fetch(connection, clause, parameters, doing, as_bytes=as_bytes)


def fail(
    connection: Connection, clause: Clause, parameters: Mapping[str, Any], error: BaseException, doing: str
) -> NoReturn:
    """Raise what a driver raised as if SQLAlchemy had executed the statement: it lets a broken connection go."""
    try:
        reraise(connection, clause, parameters, error)
    except StatementError as found:
        refuse(found, doing)


def reraise(connection: Connection, clause: Clause, parameters: Mapping[str, Any], error: BaseException) -> NoReturn:
    """As :func:`fail`, always SQLAlchemy's error; what interrupted the call is raised as it is."""
    driver = driver_of(connection)
    if isinstance(error, connection.dialect.loaded_dbapi.Error):
        fail_as_executed(connection, clause.numbered(driver, parameters)[0].sql, parameters, error)
    let_go(connection, error)
    raise error


def let_go(connection: Connection, error: BaseException) -> None:
    """Let the driver's connection go, unless the server has answered all that was sent before the error."""
    if not connection.invalidated and driver_of(connection).give_up(connection):
        connection.invalidate(error)


def fetch(
    connection: Connection, clause: Clause, parameters: Mapping[str, Any], doing: str, *, as_bytes: bool = False
) -> Sequence[Row[Any]]:
    """The rows of a statement.

    Args:
        connection: Where it is executed.
        clause: The statement.
        parameters: Its parameters.
        doing: What it does, for an error's message: ``"dequeue from queue 'documents'"``.
        as_bytes: Whether it has bytea columns.

    Raises:
        FairQueueError: The database refused it with an SQLSTATE that has a class.
    """
    driver = driver_of(connection)
    _settle_isolation(connection)
    try:
        with driver.bytes_results(connection) if as_bytes else nullcontext():
            return connection.execute(clause.statement, clause.encoded(driver, parameters)).all()
    except StatementError as error:
        refuse(error, doing)


def refuse(error: StatementError, doing: str) -> NoReturn:
    """Raise the error for a statement that failed: one of this package, or SQLAlchemy's. Neither shows contents."""
    _hide_contents(error)
    refusal = translated(error, doing) if isinstance(error, DBAPIError) else None
    if refusal is None:
        raise error
    raise refusal from error


def _hide_contents(error: StatementError) -> None:
    """Keep payloads, and all else that a call was given, out of the text of an error.

    The parameters stay in its ``params``.
    """
    error.hide_parameters = True
    hide_row(error)


def translated(error: DBAPIError, doing: str) -> FairQueueError | None:
    """The error of this package for what the database refused; None if its SQLSTATE has no class."""
    refusal = refusal_of(error)
    kind = FairQueueError.of_sqlstate.get(refusal.sqlstate)
    if kind is None:
        return None
    problem = f"{refusal.message} ({refusal.detail})" if refusal.detail else refusal.message
    hint = refusal.hint
    if kind is SchemaMismatch:
        # Raised within a function: then it is installed.
        hint = to_repair() if refusal.context else to_install()
    return kind(f"cannot {doing}: {problem}; {hint or 'see the documentation of the call'}")


def may_notify(connection: Connection, notify: bool) -> bool:  # noqa: FBT001 - passed on from the keyword
    """Whether a transaction that is allowed to notify can: PREPARE TRANSACTION refuses one that has."""
    return notify and not isinstance(connection.get_transaction(), TwoPhaseTransaction)
