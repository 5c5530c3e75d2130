"""Statements that travel with the COMMIT of their transaction, in one round trip to the server.

Python cannot look at the outcome of such a statement before the COMMIT. So the statement itself fails, by
``fq_refuse``, for an outcome that must not be committed. If an engine has listeners of statements, SQLAlchemy prepares
each statement as usual, with all events. Its event ``do_execute`` lets a listener send a statement in its place: there
the driver sends all of them together.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import StatementError

from sqlalchemy_fairqueue.database.calls import let_go
from sqlalchemy_fairqueue.database.drivers import driver_of, refusal_of
from sqlalchemy_fairqueue.database.errors import refuse
from sqlalchemy_fairqueue.database.hooks import execute_by, executes_itself, is_watched
from sqlalchemy_fairqueue.errors import FairQueueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Call
    from sqlalchemy_fairqueue.database.drivers import Driver

_REFUSED = "QF010"


class CommitRefused(FairQueueError):
    """A statement had an outcome that its transaction must not be committed with; it was not.

    Attributes:
        index: Of the statement.
        outcome: "duplicate", "full" or "lost".
        ordinal: Which message of an enqueue, from 1.
        message_ids: The messages: the one that holds the key, or those that were lost, ascending.
        max_backlog: The bound of a channel that is full.
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


class _Batch:
    """Statements as SQLAlchemy would hand them to a cursor, kept until all are there, and then sent.

    *rows* gets those of each statement that was answered.
    """

    def __init__(self, connection: Connection, driver: Driver, size: int, rows: list[list[Any]]) -> None:
        self._rows = rows
        self._connection = connection
        self._driver = driver
        self._size = size
        self._statements: list[tuple[str, Any]] = []

    def add(self, statement: str, parameters: Any) -> None:
        """Keep one; after the last, send all, and COMMIT."""
        self._statements.append((statement, parameters))
        if len(self._statements) == self._size:
            self._driver.commit_with(self._connection, self._statements, self._rows)


def can_commit_with(connection: Connection) -> bool:
    """Whether statements can travel with the COMMIT of the connection's transaction, which is a plain one.

    Nobody else may have work to do right before the COMMIT, nor execute statements or commit in a way of their own.
    """
    dialect = connection.dialect
    return (
        not connection.invalidated
        and not connection.dispatch.commit
        and executes_itself(dialect)
        and type(dialect).do_commit is DefaultDialect.do_commit
        and driver_of(connection).can_commit_with(connection)
    )


def commit_with(connection: Connection, calls: Sequence[Call]) -> list[list[Any]]:
    """Send calls and COMMIT together, when :func:`can_commit_with` says so; return the rows of each.

    SQLAlchemy's own commit then finds nothing to do. After an error, a rollback is owed as ever.

    Raises:
        CommitRefused: A call had an outcome that must not be committed.
        FairQueueError: The database refused one with an SQLSTATE that has a class.
    """
    rows: list[list[Any]] = []
    try:
        if is_watched(connection) or not _sent_past(connection, calls, rows):
            _send(connection, calls, rows)
    except StatementError as error:
        index = len(rows)
        if index == len(calls):
            # It was the COMMIT itself.
            error.statement = error.params = None
            raise
        refusal = refusal_of(error)
        if refusal.sqlstate == _REFUSED:
            raise CommitRefused(index, json.loads(refusal.detail or "")) from error
        refuse(error, calls[index].doing)
    except BaseException as error:
        # A signal's handler, or the cancel of a task: nobody knows whether it was committed.
        let_go(connection, error)
        raise
    return rows


def _sent_past(connection: Connection, calls: Sequence[Call], rows: list[list[Any]]) -> bool:
    """Send them past SQLAlchemy, if the driver can. SQLAlchemy raises what fails."""
    driver = driver_of(connection)
    if not driver.passes_sqlalchemy:
        return False
    statements = [call.clause.numbered(driver, call.parameters) for call in calls]
    try:
        return driver.commit_alone(connection, statements, rows)
    except BaseException as error:  # noqa: BLE001 - raised again by SQLAlchemy, which knows what to do then
        calls[min(len(rows), len(calls) - 1)].reraise(connection, error)


def _send(connection: Connection, calls: Sequence[Call], rows: list[list[Any]]) -> None:
    driver = driver_of(connection)
    batch = _Batch(connection, driver, len(calls), rows)
    for call in calls:
        execute_by(connection, call.clause.statement, call.clause.encoded(driver, call.parameters), batch.add)
