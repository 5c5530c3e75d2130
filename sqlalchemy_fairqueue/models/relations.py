"""Relationships without foreign keys: the tables have none, so each mapping says itself what belongs together."""

from __future__ import annotations

# ruff: noqa: ANN401 - type checkers take the class that a declared attribute is given for an instance

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Mapped, foreign, relationship

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement


def one(cls: Any, table: str, key: str, of: str) -> Mapped[Any]:
    """The row of *table* whose column *of* is this row's *key*, or None. Read-only."""

    def condition() -> ColumnElement[bool]:
        joined: ColumnElement[bool] = foreign(getattr(cls, key)) == getattr(_mapped(cls, table), of)
        return joined

    return relationship(lambda: _mapped(cls, table), primaryjoin=condition, uselist=False, viewonly=True)


def many(cls: Any, table: str, key: str, of: str, *, single: bool = False) -> Mapped[Any]:
    """The rows of *table* whose column *key* is this row's *of*; one row or None where *single*. Read-only."""

    def condition() -> ColumnElement[bool]:
        joined: ColumnElement[bool] = getattr(cls, of) == foreign(getattr(_mapped(cls, table), key))
        return joined

    return relationship(lambda: _mapped(cls, table), primaryjoin=condition, uselist=not single, viewonly=True)


def _mapped(cls: Any, table: str) -> type[Any]:
    # Found by its table rather than by a class name, which is the user's to choose.
    schema = cls.__table__.schema
    for mapper in cls.registry.mappers:
        local: Any = mapper.local_table
        if local.name == table and local.schema == schema:
            found: type[Any] = mapper.class_
            return found
    problem = (
        f"{cls.__name__} has a relationship with {table}, which its Base does not map; "
        "map all of fairqueue's mixins on that Base, or use make_models(Base)"
    )
    raise InvalidRequestError(problem)
