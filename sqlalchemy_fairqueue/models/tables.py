"""Gives the mixins the columns, constraints and indexes that ``catalog.json`` lists; lets no session write their rows.

Only the SQL functions keep the invariants of rows: a message that is written without a signal is never delivered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar, cast

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapped, Mapper, Session, declared_attr, foreign, mapped_column, object_session, relationship
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.models.types import Duration, Instant, RoleName, Xid, Xid8, Xid8Array
from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from sqlalchemy import ColumnElement, Connection, FromClause
    from sqlalchemy.types import TypeEngine

    Mixin = TypeVar("Mixin", bound=type[Any])


class ReadOnlyModel(FairQueueError, TypeError):
    """A session was asked to write a row of fairqueue, which is read-only. The row was not written.

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
    """A relationship of a mixin with another table: the mixin's column *own* equals the column *other* there.

    Attributes:
        foreign_key_here: Whether *own* refers to *other*, as a foreign key does; otherwise *other* refers to *own*.
    """

    table: str
    own: str
    other: str
    many: bool = False
    foreign_key_here: bool = False

    def __get__(self, row: object, mixin: type[Any]) -> NoReturn:
        """Raise AttributeError, as if there were no attribute. A mapped class may get a relationship in its place."""
        raise AttributeError(self.table)


def related(table: str, *, own: str, other: str, foreign_key_here: bool = False) -> Mapped[Any]:
    return cast("Mapped[Any]", Related(table, own, other, foreign_key_here=foreign_key_here))


def related_rows(table: str, *, own: str, other: str) -> Mapped[list[Any]]:
    return cast("Mapped[list[Any]]", Related(table, own, other, many=True))


class FairqueueMixin:
    """Base of the mixins.

    A mapped class gets a relationship only if the table at the other end of the relationship is mapped too, on the same
    declarative base and in the same schema. A class may set ``__fairqueue_schema__``, the schema of the installation.
    If this is None, the tables are in the schema of the MetaData or, if the MetaData has none, in the connection's
    default schema. The mixins set the other attributes.
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
    # A row whose attributes were set to their present values is dirty too, but a flush would write nothing.
    session = object_session(target)
    if session is None or session.is_modified(target):
        _refuse(target, "updated")


@event.listens_for(FairqueueMixin, "before_delete", propagate=True)
def _refuse_delete(_mapper: Mapper[Any], _connection: Connection, target: FairqueueMixin) -> None:
    _refuse(target, "deleted")


@event.listens_for(FairqueueMixin, "instrument_class", propagate=True)
def _check(mapper: Mapper[Any], class_: type[Any]) -> None:
    """Refuse a class whose own ``__table_args__`` loses constraints, indexes or the schema of its mixin."""
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
    for partner in mapper.registry.mappers:
        _connect(mapper, partner)
        _connect(partner, mapper)


def _connect(mapper: Mapper[Any], partner: Mapper[Any]) -> None:
    here: Any = mapper.local_table
    there: Any = partner.local_table
    listed: dict[str, Related] = getattr(mapper.class_, "__fairqueue_related__", {})
    for name, one in listed.items():
        together = there.name == one.table and there.schema == here.schema
        if together and not mapper.has_property(name) and not hasattr(mapper.class_, name):
            mapper.add_property(name, _relationship(mapper.class_, partner.class_, one))


def _relationship(cls: type[Any], partner: type[Any], one: Related) -> Any:
    def condition() -> ColumnElement[bool]:
        here, there = getattr(cls, one.own), getattr(partner, one.other)
        joined: ColumnElement[bool] = foreign(here) == there if one.foreign_key_here else here == foreign(there)
        return joined

    return relationship(partner, primaryjoin=condition, uselist=one.many, viewonly=True)


_TYPES: Final[Mapping[str, Callable[[], TypeEngine[Any]]]] = {
    "bigint": BigInteger,
    "boolean": Boolean,
    "bytea": LargeBinary,
    "integer": Integer,
    "jsonb": JSONB,
    "regrole": RoleName,
    "smallint": SmallInteger,
    "timestamp with time zone": partial(TIMESTAMP, timezone=True),
    "uuid": Uuid,
    "xid": Xid,
    "xid8": Xid8,
    "xid8[]": Xid8Array,
}
# Columns of microseconds, by the endings of their names, except dequeue_at, which need not be a time.
_INSTANT = re.compile(r"(?<!dequeue)_(at|until|from|since)$|^at$|^(due|lease)_floor$")
_DURATION = re.compile(r"_(interval|aging|retention)$|^(every|jitter|delay|unique_for|forget_\w+_after)$")
_KEY = re.compile(r"^(PRIMARY KEY|UNIQUE) \((.+)\)$")
_INDEX = re.compile(
    r"^CREATE (UNIQUE )?INDEX \w+ ON (?:ONLY )?\w+ USING (\w+) \(((?:[^()]|\(\([^()]+\)\))+)\)(?: WHERE (.+))?$"
)


# Columns that are named like instants, but stay plain numbers, since they may be negative.
_NUMBERS: Final[Mapping[str, Collection[str]]] = {"fq_channel_state": ("due_at", "rate_at", "used_at")}


@cache
def columns_of(table: str) -> type[FairqueueMixin]:
    numbers = _NUMBERS.get(table, ())
    columns = {
        name: _column(facts, _type(name, facts, as_number=name in numbers)) for name, facts in _of(table, "column")
    }
    if not columns:
        raise AttributeError(table)
    return type(table, (FairqueueMixin,), {"__tablename__": table, **columns})


def mapping(verbs: str, *, key: tuple[str, ...] = ()) -> Callable[[Mixin], Mixin]:
    """Return a class decorator that gives a mixin the constraints and indexes of its table, with their names.

    Args:
        verbs: A clause for the text of :class:`ReadOnlyModel`, which says what writes the table.
        key: The columns of the mapping's key, if the table has no primary key.
    """

    def made(mixin: Mixin) -> Mixin:
        table = mixin.__tablename__
        mixin.__fairqueue_verbs__ = verbs
        attributes = [item for base in mixin.__mro__ for item in vars(base).items()]
        mixin.__fairqueue_related__ = {name: value for name, value in attributes if isinstance(value, Related)}

        # The functions need these names: mixins are not mapped, and on such a class SQLAlchemy warns of a declared_attr
        # unless its function is named like this.
        def __table_args__(cls: Any) -> tuple[Any, ...]:  # noqa: N807
            return _arguments(table, cls.__fairqueue_schema__)

        def __mapper_args__(cls: Any) -> dict[str, Any]:  # noqa: N807
            return {"primary_key": [cls.__table__.c[name] for name in key]}

        mixin.__table_args__ = declared_attr.directive(__table_args__)
        if key:
            mixin.__mapper_args__ = declared_attr.directive(__mapper_args__)
        return mixin

    return made


@cache
def _of(table: str, kind: str) -> list[tuple[str, Mapping[str, str]]]:
    begin = f"{kind} {table}."
    catalog = expected_catalog(NEEDED_VERSION)
    return [(name.removeprefix(begin), facts) for name, facts in catalog.items() if name.startswith(begin)]


def _type(name: str, facts: Mapping[str, str], *, as_number: bool) -> TypeEngine[Any]:
    kind = facts["type"]
    if kind == "bigint" and not as_number:
        return Instant() if _INSTANT.search(name) else Duration() if _DURATION.search(name) else BigInteger()
    if kind in _TYPES:
        return _TYPES[kind]()
    if kind.endswith("[]"):
        return ARRAY(_type(name, {**facts, "type": kind.removesuffix("[]")}, as_number=True))
    collation = facts["collation"]
    return Text(collation=None if collation == "default" else collation)


def _column(facts: Mapping[str, str], kind: TypeEngine[Any]) -> Any:
    default = facts.get("default")
    if default is not None and default.startswith("nextval("):
        # The MetaData does not have the sequence, and only SQL functions insert rows.
        default = None
    identity = [Identity(always=True)] if facts.get("identity") == "a" else []
    return mapped_column(
        kind,
        *identity,
        nullable="not null" not in facts,
        server_default=None if default is None else text(default),
        autoincrement="auto" if identity else False,
    )


def _arguments(table: str, schema: str | None) -> tuple[Any, ...]:
    facts = expected_catalog(NEEDED_VERSION)[f"table {table}"]
    options: dict[str, Any] = {"schema": schema}
    if "partition key" in facts:
        options["postgresql_partition_by"] = facts["partition key"]
    if facts["persistence"] == "u":
        options["prefixes"] = ["UNLOGGED"]
    constraints = dict(_of(table, "constraint"))
    items: list[Any] = [_constraint(name, one["definition"]) for name, one in constraints.items()]
    for name, one in expected_catalog(NEEDED_VERSION).items():
        kind, _, index = name.partition(" ")
        if kind == "index" and one["table"] == table and index not in constraints:
            items.append(_index(index, one["definition"]))
    return (*items, options)


def _constraint(name: str, definition: str) -> Any:
    key = _KEY.match(definition)
    if key is None:
        return CheckConstraint(definition.removeprefix("CHECK (").removesuffix(")"), name=conv(name))
    kind = PrimaryKeyConstraint if key[1] == "PRIMARY KEY" else UniqueConstraint
    return kind(*_names(key[2]), name=conv(name))


def _index(name: str, definition: str) -> Index:
    found = _INDEX.match(definition)
    assert found is not None, definition  # noqa: S101 - a test maps every index of the catalog
    unique, method, columns, where = found.groups()
    options: dict[str, Any] = {} if method == "btree" else {"postgresql_using": method}
    if where is not None:
        options["postgresql_where"] = text(where)
    # A column may be followed by its direction, or be an expression.
    items = [text(one) if " " in one else one for one in _names(columns)]
    return Index(conv(name), *items, unique=unique is not None, **options)


def _names(columns: str) -> list[str]:
    return [name.strip('"') for name in columns.split(", ")]
