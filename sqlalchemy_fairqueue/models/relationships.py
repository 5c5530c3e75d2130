"""Relationships without foreign keys: the tables have none, so each mapping says itself what belongs together.

A mixin lists its relationships, and each is made when both of its classes are mapped on the same Base in the same
schema. So a user may map one mixin alone, under any class name, and no name is looked up that is the user's to choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import foreign, relationship

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Mapper


@dataclass(frozen=True, slots=True)
class Related:
    """A relationship of a mixin with another table.

    Attributes:
        table: The other table.
        own: The column here.
        other: The column there that equals it.
        many: Whether several rows there may belong to one here.
        named_here: Whether it is the row here that names the one there.
    """

    table: str
    own: str
    other: str
    many: bool = False
    named_here: bool = False


def relate(mapper: Mapper[Any]) -> None:
    """Give a class that was just mapped, and those mapped before, the relationships between them."""
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
        joined: ColumnElement[bool] = foreign(here) == there if related.named_here else here == foreign(there)
        return joined

    return relationship(partner, primaryjoin=condition, uselist=related.many, viewonly=True)
