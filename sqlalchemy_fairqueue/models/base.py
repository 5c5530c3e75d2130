"""Base of the mixins: read-only rows of one schema, with relationships to the other mixins that are mapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import event

from sqlalchemy_fairqueue.models.read_only import ReadOnly
from sqlalchemy_fairqueue.models.relationships import Related, relate

if TYPE_CHECKING:
    from sqlalchemy import FromClause
    from sqlalchemy.orm import Mapper


class FairqueueMixin(ReadOnly):
    """Base of the mixins.

    A relationship of a mixin exists if the mixin of the other table is mapped too, on the same Base and in the same
    schema.

    Attributes:
        __fairqueue_schema__: The schema that fairqueue is installed in. None is the schema of the Base's MetaData, and
            without one the connection's default schema.
    """

    __fairqueue_schema__: ClassVar[str | None] = None
    __fairqueue_related__: ClassVar[dict[str, Related]] = {}
    __table__: ClassVar[FromClause]


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
    relate(mapper)
