"""Base of the mixins: rows that a session cannot write, and relationships between mapped mixins.

Only the SQL functions keep the invariants of the rows; a message without its signal would never be delivered. So
``session.add`` of a new row and a flush that would write one are refused.

The tables have no foreign keys; each mixin lists its relationships. A relationship is created when both classes are
mapped on the same Base and in the same schema. So you can map one mixin alone, and give classes any name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import event
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Session, foreign, object_session, relationship

from sqlalchemy_fairqueue.errors import FairQueueError

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause
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


@dataclass(frozen=True, slots=True)
class Related:
    """A relationship of a mixin with another table.

    Attributes:
        own: The column of the mixin.
        other: The equal column of the other table.
        many: Whether several rows of the other table may belong to one row here.
        foreign_key_here: Whether the column here refers to the other table, as a foreign key would.
    """

    table: str
    own: str
    other: str
    many: bool = False
    foreign_key_here: bool = False


class FairqueueMixin:
    """Base of the mixins.

    A relationship exists if the mixin of the other table is mapped too, on the same Base and in the same schema.

    Attributes:
        __fairqueue_schema__: The schema of the installation. None: the schema of the Base's MetaData, or else the
            connection's default schema.
    """

    __fairqueue_schema__: ClassVar[str | None] = None
    __fairqueue_verbs__: ClassVar[str] = "the functions of fairqueue write it"
    __fairqueue_related__: ClassVar[dict[str, Related]] = {}
    __table__: ClassVar[FromClause]


def _refuse(row: FairqueueMixin, verb: str) -> None:
    table = inspect(row).mapper.local_table
    problem = (
        f"{type(row).__name__} cannot be {verb} through a session: {table} is read-only here; {row.__fairqueue_verbs__}"
    )
    raise ReadOnlyModel(problem)


@event.listens_for(Session, "before_attach")
def _refuse_add(_session: Session, instance: object) -> None:
    if isinstance(instance, FairqueueMixin) and inspect(instance).key is None:
        _refuse(instance, "added")


@event.listens_for(FairqueueMixin, "before_insert", propagate=True)
def _refuse_insert(_mapper: Mapper[Any], _connection: Connection, target: FairqueueMixin) -> None:
    _refuse(target, "inserted")


@event.listens_for(FairqueueMixin, "before_update", propagate=True)
def _refuse_update(_mapper: Mapper[Any], _connection: Connection, target: FairqueueMixin) -> None:
    # The event also fires for a row whose attributes were set to their present values.
    session = object_session(target)
    if session is None or session.is_modified(target):
        _refuse(target, "updated")


@event.listens_for(FairqueueMixin, "before_delete", propagate=True)
def _refuse_delete(_mapper: Mapper[Any], _connection: Connection, target: FairqueueMixin) -> None:
    _refuse(target, "deleted")


@event.listens_for(FairqueueMixin, "instrument_class", propagate=True)
def _check(mapper: Mapper[Any], class_: type[Any]) -> None:
    """Refuse a class whose own ``__table_args__`` replaces that of its mixin."""
    given = [base for base in class_.__mro__ if "__table_args__" in vars(base)]
    ours: list[Any] = [base for base in given if issubclass(base, FairqueueMixin)]
    if not ours or given[0] is ours[-1] or mapper.inherits is not None:
        return
    mixin = ours[-1]
    table: Any = mapper.local_table
    *items, _ = mixin.__table_args__
    lost = sorted({item.name for item in items} - {item.name for item in (*table.constraints, *table.indexes)})
    if table.schema != (class_.__fairqueue_schema__ or table.metadata.schema):
        lost.append(f"schema {class_.__fairqueue_schema__!r}")
    if lost:
        problem = (
            f"{class_.__name__} maps {table} without {', '.join(lost)}: its __table_args__ replaces that of "
            f"{mixin.__name__}; make it @declared_attr.directive, and return (..., *super().__table_args__) from it"
        )
        raise TypeError(problem)


@event.listens_for(FairqueueMixin, "after_mapper_constructed", propagate=True)
def _relate(mapper: Mapper[Any], _class: type[Any]) -> None:
    """Create the relationships between a newly mapped class and those mapped before."""
    for partner in mapper.registry.mappers:
        _connect(mapper, partner)
        _connect(partner, mapper)


def _connect(mapper: Mapper[Any], partner: Mapper[Any]) -> None:
    here: Any = mapper.local_table
    there: Any = partner.local_table
    listed: dict[str, Related] = getattr(mapper.class_, "__fairqueue_related__", {})
    for name, related in listed.items():
        together = there.name == related.table and there.schema == here.schema
        if together and not mapper.has_property(name) and not hasattr(mapper.class_, name):
            mapper.add_property(name, _relationship(mapper.class_, partner.class_, related))


def _relationship(cls: type[Any], partner: type[Any], related: Related) -> Any:
    def condition() -> ColumnElement[bool]:
        here, there = getattr(cls, related.own), getattr(partner, related.other)
        joined: ColumnElement[bool] = foreign(here) == there if related.foreign_key_here else here == foreign(there)
        return joined

    return relationship(partner, primaryjoin=condition, uselist=related.many, viewonly=True)
