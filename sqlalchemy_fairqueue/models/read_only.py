"""Read-only rows: a session cannot write them.

Only the SQL functions keep the invariants of the rows: a message without its signal would never be delivered. So a
flush that would write a row is refused, and so is ``session.add`` of a new one, where the mistake was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import event
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Session, object_session

from sqlalchemy_fairqueue.errors import FairQueueError

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Mapper


class ReadOnlyModel(FairQueueError, TypeError):
    """A session was asked to write a row of fairqueue. Nothing was sent to the database.

    Example:
        >>> with Session(engine) as session:
        ...     try:
        ...         session.add(Message(kind="parse"))
        ...     except ReadOnlyModel as error:
        ...         print(error)
        Message cannot be added through a session: fq_message is read-only here; ...
    """


class ReadOnly:
    """Rows of a mapped subclass are read, and never written by a flush."""

    __fairqueue_verbs__: ClassVar[str] = "the functions of fairqueue write it"


def _refuse(row: ReadOnly, verb: str) -> None:
    table = inspect(row).mapper.local_table
    problem = (
        f"{type(row).__name__} cannot be {verb} through a session: {table} is read-only here; {row.__fairqueue_verbs__}"
    )
    raise ReadOnlyModel(problem)


@event.listens_for(Session, "before_attach")
def _refuse_add(_session: Session, instance: object) -> None:
    if isinstance(instance, ReadOnly) and inspect(instance).key is None:
        _refuse(instance, "added")


@event.listens_for(ReadOnly, "before_insert", propagate=True)
def _refuse_insert(_mapper: Mapper[Any], _connection: Connection, target: ReadOnly) -> None:
    _refuse(target, "inserted")


@event.listens_for(ReadOnly, "before_update", propagate=True)
def _refuse_update(_mapper: Mapper[Any], _connection: Connection, target: ReadOnly) -> None:
    # The event also fires for a row whose attributes were set to their present values.
    session = object_session(target)
    if session is None or session.is_modified(target):
        _refuse(target, "updated")


@event.listens_for(ReadOnly, "before_delete", propagate=True)
def _refuse_delete(_mapper: Mapper[Any], _connection: Connection, target: ReadOnly) -> None:
    _refuse(target, "deleted")
