"""Relationships of the mixins, without foreign keys: the tables have none.

A mixin lists its relationships. Each is made when both of its classes are mapped on the same Base and in the same
schema. So a user may map one mixin alone, under any class name: no class is looked up by its name.
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
        own: The column of the mixin.
        other: The column of the other table that equals it.
        many: Whether several rows of the other table may belong to one here.
        foreign_key_here: Whether the column here refers to the other table, as a foreign key would.
    """

    table: str
    own: str
    other: str
    many: bool = False
    foreign_key_here: bool = False


def relate(mapper: Mapper[Any]) -> None:
    """Make the relationships between a class that was just mapped and those mapped before."""
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
