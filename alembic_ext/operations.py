"""The operations as values: each knows its inverse and its statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic.operations import MigrateOperation, Operations

from alembic_ext.execution import send
from sqlalchemy_fairqueue.sql import downgrade_statements, drop_statements, install_statements, upgrade_statements
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.statements import repair_statements

if TYPE_CHECKING:
    from collections.abc import Iterator


class FairqueueOp(MigrateOperation):
    """An operation on the installation of fairqueue in *schema*, by default in the connection's default schema."""

    verb = ""

    def __init__(self, schema: str | None) -> None:
        self.schema = schema
        next(self.statements())

    def statements(self) -> Iterator[str]:
        """Yield the statements of the operation in order, each to be sent unchanged."""
        raise NotImplementedError

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that the call of the operation has as arguments, in order."""
        raise NotImplementedError

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments as a migration prints them, without the schema."""
        versions = self.versions
        return (f"version={versions[0]}",) if len(versions) == 1 else tuple(map(str, versions))

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return (self.verb, *self.versions, self.schema)


class _InstallationOp(FairqueueOp):
    def __init__(self, version: int | None = None, schema: str | None = None) -> None:
        self.version = latest_version() if version is None else version
        super().__init__(schema)

    @property
    def versions(self) -> tuple[int]:
        return (self.version,)


class _LadderOp(FairqueueOp):
    def __init__(self, before: int, after: int, schema: str | None = None) -> None:
        self.before = before
        self.after = after
        super().__init__(schema)

    @property
    def versions(self) -> tuple[int, int]:
        return (self.before, self.after)


@Operations.register_operation("create_fairqueue")
class CreateFairqueueOp(_InstallationOp):
    """Install fairqueue; the inverse is :class:`DropFairqueueOp`.

    Example:
        >>> CreateFairqueueOp(1).reverse().to_diff_tuple()
        ('drop_fairqueue', 1, None)
    """

    verb = "create_fairqueue"

    @classmethod
    def create_fairqueue(cls, operations: Operations, version: int | None = None, schema: str | None = None) -> None:
        """Install fairqueue's tables and functions into an existing schema, in the migration's transaction.

        Args:
            version: By default the newest version that the library knows when the migration runs. Name it in migrations
                that you keep, as autogenerate does, so that they always install the same.
            schema: An existing schema, by default the connection's default schema.

        Raises:
            ValueError: The version or the schema's name is impossible, or the database is not PostgreSQL.
            SchemaMismatch: The schema is missing, or holds objects under names that fairqueue needs.

        Example:
            >>> op.execute("create schema queues")
            >>> op.create_fairqueue(version=1, schema="queues")
        """
        operations.invoke(cls(version, schema))

    def statements(self) -> Iterator[str]:
        return install_statements(self.version, self.schema)

    def reverse(self) -> DropFairqueueOp:
        return DropFairqueueOp(self.version, self.schema)


@Operations.register_operation("drop_fairqueue")
class DropFairqueueOp(_InstallationOp):
    """Remove fairqueue; the inverse is :class:`CreateFairqueueOp`.

    Example:
        >>> DropFairqueueOp(1).reverse().to_diff_tuple()
        ('create_fairqueue', 1, None)
    """

    verb = "drop_fairqueue"

    @classmethod
    def drop_fairqueue(cls, operations: Operations, version: int | None = None, schema: str | None = None) -> None:
        """Drop fairqueue's functions and tables with all messages, in the migration's transaction.

        Args:
            version: The installed version, by default the newest that the library knows when the migration runs.
            schema: The schema of the installation, which stays; by default the connection's default schema.

        Raises:
            ValueError: The version or the schema's name is impossible, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold this version. Nothing was changed.

        Example:
            >>> op.drop_fairqueue(version=1)
        """
        operations.invoke(cls(version, schema))

    def statements(self) -> Iterator[str]:
        return drop_statements(self.version, self.schema)

    def reverse(self) -> CreateFairqueueOp:
        return CreateFairqueueOp(self.version, self.schema)


@Operations.register_operation("upgrade_fairqueue")
class UpgradeFairqueueOp(_LadderOp):
    """Upgrade an installation to a newer version; the inverse is :class:`DowngradeFairqueueOp`.

    Example:
        >>> UpgradeFairqueueOp(1, 2).reverse().to_diff_tuple()  # doctest: +SKIP
        ('downgrade_fairqueue', 2, 1, None)
    """

    verb = "upgrade_fairqueue"

    @classmethod
    def upgrade_fairqueue(cls, operations: Operations, old: int, new: int, schema: str | None = None) -> None:
        """Upgrade an installation from version *old* to *new*, in the migration's transaction; its content stays.

        Args:
            schema: The schema of the installation, by default the connection's default schema.

        Raises:
            ValueError: An argument is impossible, such as a *new* that is not newer, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold *old*, or other objects have names that *new* adds.
            IsolationError: The transaction is not READ COMMITTED.

        See Also:
            :meth:`DowngradeFairqueueOp.downgrade_fairqueue`
        """
        operations.invoke(cls(old, new, schema))

    def statements(self) -> Iterator[str]:
        return upgrade_statements(self.before, self.after, self.schema)

    def reverse(self) -> DowngradeFairqueueOp:
        return DowngradeFairqueueOp(self.after, self.before, self.schema)


@Operations.register_operation("downgrade_fairqueue")
class DowngradeFairqueueOp(_LadderOp):
    """Downgrade an installation to an older version; the inverse is :class:`UpgradeFairqueueOp`.

    Example:
        >>> DowngradeFairqueueOp(2, 1).reverse().to_diff_tuple()  # doctest: +SKIP
        ('upgrade_fairqueue', 1, 2, None)
    """

    verb = "downgrade_fairqueue"

    @classmethod
    def downgrade_fairqueue(cls, operations: Operations, new: int, old: int, schema: str | None = None) -> None:
        """Downgrade an installation from version *new* to *old*, in the migration's transaction; messages stay.

        Data that only the newer version can store is lost.

        Args:
            schema: The schema of the installation, by default the connection's default schema.

        Raises:
            ValueError: *old* is not older, another argument is impossible, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold *new*.
            IsolationError: The transaction is not READ COMMITTED.

        Example:
            >>> op.downgrade_fairqueue(2, 1)  # doctest: +SKIP
        """
        operations.invoke(cls(new, old, schema))

    def statements(self) -> Iterator[str]:
        return downgrade_statements(self.before, self.after, self.schema)

    def reverse(self) -> UpgradeFairqueueOp:
        return UpgradeFairqueueOp(self.after, self.before, self.schema)


@Operations.register_operation("repair_fairqueue")
class RepairFairqueueOp(_InstallationOp):
    """Restore the functions and triggers of an installed version. The inverse does nothing: the former state is lost.

    Autogenerate prints *reasons*, the differences, as comments above the call.

    Example:
        >>> RepairFairqueueOp(1).reverse().to_diff_tuple()
        ('nothing',)
    """

    verb = "repair_fairqueue"

    def __init__(self, version: int = 1, schema: str | None = None, *, reasons: tuple[str, ...] = ()) -> None:
        self.reasons = reasons
        super().__init__(version, schema)

    @classmethod
    def repair_fairqueue(cls, operations: Operations, version: int, schema: str | None = None) -> None:
        """Restore the functions and triggers of the installed *version*, in the migration's transaction.

        Missing functions are created, and changed functions are replaced. Functions that have one of our names but
        other arguments are dropped. Missing, changed or disabled triggers, and a missing schema of stages, are created
        again. Columns, indexes and constraints stay. Afterwards PUBLIC may use the schema of stages, but not execute
        our functions. Roles may again execute the functions of their grants. Other privileges stay.

        Args:
            schema: The schema of the installation, by default the connection's default schema.

        Raises:
            ValueError: The version or the schema's name is impossible, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold this version. Nothing was changed.

        Example:
            >>> op.execute("drop function fq_wake")
            >>> op.repair_fairqueue(version=1)
        """
        operations.invoke(cls(version, schema))

    def statements(self) -> Iterator[str]:
        return repair_statements(self.version, self.schema)

    def reverse(self) -> NothingOp:
        return NothingOp()


class NothingOp(MigrateOperation):
    """An operation that does nothing: the inverse of a repair, and of a revoke whose former grant is not known."""

    def reverse(self) -> NothingOp:
        return self

    def to_diff_tuple(self) -> tuple[str]:
        return ("nothing",)


@Operations.implementation_for(CreateFairqueueOp)
@Operations.implementation_for(DropFairqueueOp)
@Operations.implementation_for(UpgradeFairqueueOp)
@Operations.implementation_for(DowngradeFairqueueOp)
@Operations.implementation_for(RepairFairqueueOp)
def run(operations: Operations, operation: FairqueueOp) -> None:
    send(operations.migration_context, f"op.{operation.verb}()", operation.schema, operation.statements())


@Operations.implementation_for(NothingOp)
def run_nothing(_operations: Operations, _operation: NothingOp) -> None:
    pass
