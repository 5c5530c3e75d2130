"""Finds the operations that ``alembic revision --autogenerate`` and ``alembic check`` propose for fairqueue.

Alembic compares tables, but knows neither functions nor versions. After its comparison, this module replaces the
changes that Alembic found in fairqueue's tables by operations that install, repair or upgrade, or by none.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from alembic.autogenerate import comparators
from alembic.operations import ops
from alembic.util import DispatchPriority, PriorityDispatchResult
from sqlalchemy import text

from alembic_ext.additions import additions
from alembic_ext.declared_grants import declared_grants, grant_changes
from alembic_ext.operations import CreateFairqueueOp, RepairFairqueueOp, UpgradeFairqueueOp
from alembic_ext.recognition import Installation, inspect_schema, is_ours, is_stage, names_in
from sqlalchemy_fairqueue.errors import SchemaMismatch
from sqlalchemy_fairqueue.sql.files import latest_version, tables
from sqlalchemy_fairqueue.sql.schema import IS_UNRELEASED, UNRELEASED, named_schema, schema_argument

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext
    from alembic.operations import MigrateOperation
    from sqlalchemy import Table

    from sqlalchemy_fairqueue.sql import Difference

_REPAIRED = ("function", "schema")
# A logger below "alembic", so that its lines are printed where Alembic's own findings are.
_log = logging.getLogger("alembic.autogenerate.fairqueue")


# Without the name of a schema, Alembic finds what is visible on the search_path.
_VISIBLE = """
select n.nspname
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relname = :name
  and pg_table_is_visible(c.oid)
"""

# The types of objects about which Alembic itself asks name filters; plugins ask about more types.
_ALEMBIC_TYPES = {
    "schema",
    "table",
    "column",
    "index",
    "unique_constraint",
    "foreign_key_constraint",
    "check_constraint",
}
# Finds names of our objects in a plugin's texts: "public.fq_wake(p_queue text)", "public.fq_lease.reader.SELECT".
_QUALIFIED = re.compile(r"\.(fq_\w+)")

# The operations by which Alembic adds the user's own objects to a table of ours.
_ADDITIONS = (ops.AddColumnOp, ops.AddConstraintOp, ops.CreateIndexOp)


_alembic_log = logging.getLogger("alembic.ddl.postgresql")
# The comparison of each run, which ``hide`` makes first and ``compare`` takes last.
_comparisons: WeakKeyDictionary[AutogenContext, _Comparison] = WeakKeyDictionary()


@comparators.dispatch_for("autogenerate", qualifier="postgresql", priority=DispatchPriority.FIRST)
def hide(context: AutogenContext, _upgrade: ops.UpgradeOps) -> PriorityDispatchResult:
    """Let Alembic and its plugins overlook our objects that the metadata lacks; drop log lines about our sequences."""
    if context.opts.get("fairqueue", True):
        comparison = _comparisons[context] = _Comparison(context)
        # A private list, since the only public filter, include_name, belongs to the user.
        filters = getattr(context, "_name_filters", None)
        if isinstance(filters, list):
            filters.append(comparison.shows)
        _alembic_log.addFilter(_is_told)
    return PriorityDispatchResult.CONTINUE


@comparators.dispatch_for("autogenerate", qualifier="postgresql", priority=DispatchPriority.LAST)
def compare(context: AutogenContext, upgrade: ops.UpgradeOps) -> PriorityDispatchResult:
    """Replace Alembic's changes of fairqueue's tables by our operations, and add changes that Alembic cannot find."""
    _alembic_log.removeFilter(_is_told)
    if context.opts.get("fairqueue", True):
        (_comparisons.pop(context, None) or _Comparison(context)).replace(upgrade)
    return PriorityDispatchResult.CONTINUE


def _is_told(record: logging.LogRecord) -> bool:
    """Return whether to log a record of Alembic: not if Alembic mistakes one of our sequences for that of a SERIAL."""
    found = record.args
    is_ours = isinstance(found, tuple) and len(found) > 1 and str(found[1]) in tables(latest_version())
    return not (is_ours and record.msg.startswith("Detected sequence named"))


class _Comparison:
    """A comparison of the metadata with a database. A schema that the metadata calls None has its real name here."""

    def __init__(self, context: AutogenContext) -> None:
        if context.connection is None:
            raise ValueError("autogenerate has no connection to compare with; configure Alembic with one")
        self.context = context
        self.connection = context.connection
        # The schema of operations that name none. The dialect's default would miss a search_path that was set later.
        self.default = self.connection.scalar(text("select current_schema()"))
        self.wanted: dict[str | None, dict[str, Table]] = {}
        self.found: dict[str | None, Installation] = {}
        self.named = {(self.named_schema(table.schema), table.name) for table in context.sorted_tables}
        for table in context.sorted_tables:
            included = context.run_object_filters(table, table.name, "table", False, None)
            if included and is_ours(table.name, table.columns.keys()):
                self.wanted.setdefault(self.named_schema(table.schema), {})[table.name] = table

    def named_schema(self, schema: str | None) -> str | None:
        return self.default if schema is None else str(schema)

    def installation(self, schema: str | None) -> Installation:
        if schema not in self.found:
            self.found[schema] = inspect_schema(self.connection, schema)
        return self.found[schema]

    def shows(self, name: str | None, type_: str, parents: Any) -> bool:
        """Return whether Alembic or a plugin may see an object. Alembic's hook ``include_name`` has these arguments."""
        schema = parents.get("schema_name")
        if name is not None and type_ not in _ALEMBIC_TYPES:
            return not any(self.is_ours(schema, found) for found in _QUALIFIED.findall(name))
        if type_ != "table" or name is None or (self.named_schema(schema), name) in self.named:
            return True
        schema = self.visible(name) if schema is None and name.startswith("fq_") else self.named_schema(schema)
        # Only name and schema are known here; ``compare`` knows the columns too.
        return not is_stage(name, schema) and not self.installation(schema).holds(name, ())

    def is_ours(self, schema: str | None, name: str) -> bool:
        return is_stage(name, schema) or self.installation(self.named_schema(schema)).names(name)

    def visible(self, name: str) -> str | None:
        found: str | None = self.connection.scalar(text(_VISIBLE), {"name": name})
        return found

    def replace(self, upgrade: ops.UpgradeOps) -> None:
        """Insert our operations, and remove the changes that they replace.

        Repairs and upgrades come first. An installation comes where Alembic would create the first of its tables. The
        user's additions to tables that our operations create come after all other changes of tables. Grants come last.
        """
        gone = {_table(one) for one in upgrade.ops if isinstance(one, ops.DropTableOp) and self.drops_ours(one)}
        kept: list[MigrateOperation] = []
        added: list[MigrateOperation] = []
        schemas = sorted(self.wanted, key=lambda schema: (schema != self.default, schema or ""))
        for operation in upgrade.ops:
            if isinstance(operation, ops.CreateTableOp) and self.is_made(operation):
                schema, name = self.table(operation)
                gone.add(_table(operation))
                if schema in schemas and self.installation(schema).version is None:
                    # Install before the user's tables, which may have foreign keys to ours.
                    schemas.remove(schema)
                    kept.append(self.create(schema))
                added += self.additions(schema, name)
            elif isinstance(operation, ops.ModifyTableOps):
                operation.ops[:] = self.left(operation, gone)
                kept += [operation] if operation.ops else []
            elif not (isinstance(operation, ops.DropTableOp) and _table(operation) in gone):
                kept.append(operation)
        upgrade.ops[:] = [*(one for schema in schemas for one in self.changes(schema)), *kept, *added, *self.grants()]

    def grants(self) -> list[MigrateOperation]:
        declared = declared_grants(self.context.metadata, self.default)
        return [
            one
            for schema, (given, wanted) in declared.items()
            for one in grant_changes(self.connection, schema, given, wanted, self.installation(schema).version)
        ]

    def table(self, operation: ops.CreateTableOp | ops.DropTableOp | ops.ModifyTableOps) -> tuple[str | None, str]:
        schema, name = _table(operation)
        return self.named_schema(schema), name

    def drops_ours(self, operation: ops.DropTableOp) -> bool:
        schema, name = self.table(operation)
        if operation.schema is None:
            schema = self.visible(name)
        return self.installation(schema).holds(name, operation.to_table().columns.keys())

    def is_made(self, operation: ops.CreateTableOp) -> bool:
        """Return whether our own operations create the table, so that Alembic must not."""
        schema, name = self.table(operation)
        if name not in self.wanted.get(schema, {}):
            return False
        # If somebody dropped a table of the latest version, no operation of ours creates it, so Alembic does.
        missing = {one.name for one in self.installation(schema).drift if (one.kind, one.state) == ("table", "missing")}
        return self.installation(schema).version != latest_version() or name not in missing

    def additions(self, schema: str | None, name: str) -> list[MigrateOperation]:
        found = self.installation(schema)
        return [] if found.newer else additions(self.context, self.wanted[schema][name], found.there(name))

    def left(self, operation: ops.ModifyTableOps, gone: set[tuple[str | None, str]]) -> list[MigrateOperation]:
        """Return the changes of a table that stay in the migration. All changes of the user's own tables stay.

        *gone* has the tables whose creation or drop was taken out of the migration. No change of these tables stays.

        In our other tables, changes to the user's columns, constraints and indexes stay. If the installed version is
        newer than the library, only additions of the user's objects stay. A change to one of our objects stays only if
        the object in the database has drifted from the installed version. The upgrade makes changes of a new version.
        """
        schema, name = self.table(operation)
        if name not in self.wanted.get(schema, {}) and _table(operation) not in gone:
            return operation.ops
        found = self.installation(schema)
        if found.version is None or _table(operation) in gone:
            return []
        ours = names_in(name) - found.differing(name, "missing", "changed", "unexpected")
        return [
            one
            for one in operation.ops
            if _object(one) not in ours and (not found.newer or isinstance(one, _ADDITIONS))
        ]

    def create(self, schema: str | None) -> CreateFairqueueOp:
        _log.info("Detected models of fairqueue that is not installed in schema %r", schema)
        return CreateFairqueueOp(latest_version(), self.metadata_schema(schema))

    def changes(self, schema: str | None) -> list[MigrateOperation]:
        found = self.installation(schema)
        given = self.metadata_schema(schema)
        if found.version is None:
            return [self.create(schema)]
        if found.version == UNRELEASED:
            raise SchemaMismatch(
                f"{named_schema(schema)} {IS_UNRELEASED}; put op.create_fairqueue(version={latest_version()}"
                f"{schema_argument(given)}) into an Alembic migration and run it"
            )
        if found.newer:
            _log.warning(
                "schema %r holds fairqueue version %s, which this library does not know: nothing of it was compared; "
                "upgrade the library",
                schema,
                found.version,
            )
            return []
        made: list[MigrateOperation] = []
        reasons = tuple(str(one) for one in found.drift if _is_repaired(one))
        if reasons:
            _log.warning("Detected changes of fairqueue in schema %r: %s", schema, "; ".join(reasons))
            made.append(RepairFairqueueOp(found.version, given, reasons=reasons))
        for one in found.drift:
            if not _is_repaired(one) and one.state != "unexpected":
                _log.warning("Detected a change of fairqueue in schema %r, not by its migrations: %s", schema, one)
        if found.version < latest_version():
            _log.info("Detected fairqueue version %s in schema %r", found.version, schema)
            made.append(UpgradeFairqueueOp(found.version, latest_version(), given))
        return made

    def metadata_schema(self, schema: str | None) -> str | None:
        given = next(iter(self.wanted[schema].values())).schema
        return None if given is None else str(given)


def _is_repaired(difference: Difference) -> bool:
    if difference.kind == "trigger":
        return difference.state != "unexpected"
    return difference.kind in _REPAIRED or (difference.kind == "grant" and difference.state == "missing")


def _table(operation: ops.CreateTableOp | ops.DropTableOp | ops.ModifyTableOps) -> tuple[str | None, str]:
    """Return schema and name as Alembic gives them. One table may have two results: with its schema, and with None."""
    return operation.schema, str(operation.table_name)


def _object(operation: Any) -> str | None:
    if isinstance(operation, ops.AddColumnOp):
        return str(operation.column.name)
    for attribute in ("column_name", "index_name", "constraint_name"):
        if (name := getattr(operation, attribute, None)) is not None:
            return str(name)
    return None
