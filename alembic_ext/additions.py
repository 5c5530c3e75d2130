"""Finds the columns, constraints and indexes that a user's model adds to a table of fairqueue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic.operations import ops
from sqlalchemy import CheckConstraint, ForeignKeyConstraint, UniqueConstraint

from alembic_ext.recognition import names_in

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from alembic.autogenerate.api import AutogenContext
    from alembic.operations import MigrateOperation
    from sqlalchemy import Table

_KINDS: dict[type[Any], Any] = {
    ForeignKeyConstraint: "foreign_key_constraint",
    UniqueConstraint: "unique_constraint",
    CheckConstraint: "check_constraint",
}


def additions(context: AutogenContext, table: Table, there: AbstractSet[str]) -> list[MigrateOperation]:
    """Return the operations that add the user's own objects to a table of fairqueue.

    *there* has the names of the table's objects in the database. A constraint without a name cannot be looked up in
    *there*, so it counts as existing if all of its columns exist.
    """
    known = names_in(table.name) | there

    def wanted(item: Any, kind: Any) -> bool:
        if item.name in known or (there and item.name is None and there >= set(item.columns.keys())):
            return False
        return context.run_object_filters(item, item.name, kind, False, None)

    found: list[MigrateOperation] = [
        ops.AddColumnOp.from_column_and_tablename(table.schema, table.name, column)
        for column in table.columns
        if wanted(column, "column")
    ]
    found += [
        ops.AddConstraintOp.from_constraint(constraint)
        for constraint in sorted(table.constraints, key=lambda one: str(one.name or ""))
        # A constraint that belongs to a column's type is created with the column.
        if type(constraint) in _KINDS and not getattr(constraint, "_type_bound", False)
        if wanted(constraint, _KINDS[type(constraint)])
    ]
    found += [
        ops.CreateIndexOp.from_index(index)
        for index in sorted(table.indexes, key=lambda one: str(one.name or ""))
        if wanted(index, "index")
    ]
    return [ops.ModifyTableOps(table.name, found, schema=table.schema)] if found else []
