"""Columns, constraints and indexes of the mixins, read from the catalog of the version that the library needs."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

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
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.types import Duration, Instant, RoleName, Xid, Xid8, Xid8Array
from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from sqlalchemy.types import TypeEngine

    Mixin = TypeVar("Mixin", bound=type[Any])

_TYPES: Final[Mapping[str, type[TypeEngine[Any]]]] = {
    "bigint": BigInteger,
    "boolean": Boolean,
    "bytea": LargeBinary,
    "integer": Integer,
    "jsonb": JSONB,
    "regrole": RoleName,
    "smallint": SmallInteger,
    "uuid": Uuid,
    "xid": Xid,
    "xid8": Xid8,
    "xid8[]": Xid8Array,
}
# Columns of microseconds, by the endings of their names. A message's dequeue_at is a time only until it is due, so it
# is excluded.
_INSTANT = re.compile(r"(?<!dequeue)_(at|until|from|since)$|^at$|^(due|lease)_floor$")
_DURATION = re.compile(r"_(interval|aging|retention)$|^(every|jitter|delay|unique_for|forget_\w+_after)$")
_KEY = re.compile(r"^(PRIMARY KEY|UNIQUE) \((.+)\)$")
_INDEX = re.compile(r"^CREATE (UNIQUE )?INDEX \w+ ON (?:ONLY )?\w+ USING (\w+) \(([^()]+)\)(?: WHERE (.+))?$")


def of_table(
    table: str, verbs: str, *, key: tuple[str, ...] = (), numbers: tuple[str, ...] = ()
) -> Callable[[Mixin], Mixin]:
    """Give a mixin the columns, constraints and indexes of a table, with the names of the installation.

    Args:
        verbs: The verbs that write the table, for the error of somebody who tries to.
        key: The key of the mapping, if the table has none.
        numbers: Columns that are named like instants but are plain numbers.
    """

    def made(mixin: Mixin) -> Mixin:
        mixin.__tablename__ = table
        mixin.__fairqueue_verbs__ = verbs
        for name, facts in _of(table, "column"):
            setattr(mixin, name, _column(facts, _type(name, facts, as_number=name in numbers)))

        # SQLAlchemy allows functions with these names for classes that are not mapped.
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
    """Return the catalog's objects of a kind in a table, by their names without the table's."""
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
        # SQL functions take numbers from the sequence; inserts have no default.
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
    # A column may be followed by its direction.
    items = [text(one) if " " in one else one for one in _names(columns)]
    return Index(conv(name), *items, unique=unique is not None, **options)


def _names(columns: str) -> list[str]:
    return [name.strip('"') for name in columns.split(", ")]
