"""The operations as values: each knows its inverse and the statements it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic.operations import MigrateOperation, Operations

from alembic_ext.execution import send
from sqlalchemy_fairqueue.sql import downgrade_statements, drop_statements, install_statements, upgrade_statements
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.repair import repair_statements

if TYPE_CHECKING:
    from collections.abc import Iterator


class FairqueueOp(MigrateOperation):
    """An operation on an installation of fairqueue.

    Attributes:
        schema: The schema's name, or None for the connection's default schema.

    Raises:
        ValueError: A version is not known, or PostgreSQL cannot keep the schema's name.
    """

    verb = ""

    def __init__(self, schema: str | None) -> None:
        self.schema = schema
        next(self.statements())

    def statements(self) -> Iterator[str]:
        """The statements of the operation, in order, each to be sent verbatim."""
        raise NotImplementedError

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that the operation is called with, in order."""
        raise NotImplementedError

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments as they are printed, without the schema."""
        versions = self.versions
        return (f"version={versions[0]}",) if len(versions) == 1 else tuple(map(str, versions))

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """The operation as Alembic's comparison prints it."""
        return (self.verb, *self.versions, self.schema)


class _InstallationOp(FairqueueOp):
    """An operation on one version.

    Attributes:
        version: The version of the schema. Generated migrations name it, so that they mean the same for ever.
    """

    def __init__(self, version: int | None = None, schema: str | None = None) -> None:
        self.version = latest_version() if version is None else version
        super().__init__(schema)

    @property
    def versions(self) -> tuple[int]:
        """The version."""
        return (self.version,)


class _LadderOp(FairqueueOp):
    """An operation from one version to another.

    Attributes:
        before: The version that is installed.
        after: The version that it becomes.
    """

    def __init__(self, before: int, after: int, schema: str | None = None) -> None:
        self.before = before
        self.after = after
        super().__init__(schema)

    @property
    def versions(self) -> tuple[int, int]:
        """The version that is installed, and the one that it becomes."""
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
            operations: Alembic's context.
            version: The version to install. None: the newest that the library knows when the migration runs. Name it in
                migrations that you keep, as autogenerate does: the same migration then installs the same for ever.
            schema: The schema to install into; it must exist. None is the connection's default schema.

        Raises:
            ValueError: The version is not known, the schema's name cannot be kept, or the database is not PostgreSQL.
            SchemaMismatch: The schema is missing, or names that fairqueue needs are taken in it. Nothing was changed.

        Example:
            >>> op.execute("create schema queues")
            >>> op.create_fairqueue(version=1, schema="queues")
        """
        operations.invoke(cls(version, schema))

    def statements(self) -> Iterator[str]:
        """The guard, the tables and the functions."""
        return install_statements(self.version, self.schema)

    def reverse(self) -> DropFairqueueOp:
        """The operation that takes away what this one installs."""
        return DropFairqueueOp(self.version, self.schema)


@Operations.register_operation("drop_fairqueue")
class DropFairqueueOp(_InstallationOp):
    """Take fairqueue away; the inverse is :class:`CreateFairqueueOp`.

    Example:
        >>> DropFairqueueOp(1).reverse().to_diff_tuple()
        ('create_fairqueue', 1, None)
    """

    verb = "drop_fairqueue"

    @classmethod
    def drop_fairqueue(cls, operations: Operations, version: int | None = None, schema: str | None = None) -> None:
        """Drop fairqueue's functions and tables with every message in them, in the migration's transaction.

        Args:
            operations: Alembic's context.
            version: The version that is installed. None: the newest that the library knows when the migration runs.
            schema: The schema that holds it, which stays. None is the connection's default schema.

        Raises:
            ValueError: The version is not known, the schema's name cannot be kept, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold this version. Nothing was changed.

        Example:
            >>> op.drop_fairqueue(version=1)
        """
        operations.invoke(cls(version, schema))

    def statements(self) -> Iterator[str]:
        """The guard, then the drops of the functions and of the tables."""
        return drop_statements(self.version, self.schema)

    def reverse(self) -> CreateFairqueueOp:
        """The operation that installs what this one takes away."""
        return CreateFairqueueOp(self.version, self.schema)


@Operations.register_operation("upgrade_fairqueue")
class UpgradeFairqueueOp(_LadderOp):
    """Make a newer version of an installed one; the inverse is :class:`DowngradeFairqueueOp`.

    Example:
        >>> UpgradeFairqueueOp(1, 2).reverse().to_diff_tuple()  # doctest: +SKIP
        ('downgrade_fairqueue', 2, 1, None)
    """

    verb = "upgrade_fairqueue"

    @classmethod
    def upgrade_fairqueue(cls, operations: Operations, old: int, new: int, schema: str | None = None) -> None:
        """Bring an installation to a newer version, in the migration's transaction; what is in it stays.

        Args:
            operations: Alembic's context.
            old: The version that is installed.
            new: The version that it becomes.
            schema: The schema that holds it. None is the connection's default schema.

        Raises:
            ValueError: A version is not known, *new* is not newer, the schema's name cannot be kept, or the database is
                not PostgreSQL.
            SchemaMismatch: The schema does not hold *old*, or names that *new* adds are taken. Nothing was changed.

        See Also:
            :meth:`DowngradeFairqueueOp.downgrade_fairqueue`
        """
        operations.invoke(cls(old, new, schema))

    def statements(self) -> Iterator[str]:
        """The guard, the changes of the tables, the functions that differ."""
        return upgrade_statements(self.before, self.after, self.schema)

    def reverse(self) -> DowngradeFairqueueOp:
        """The operation that goes back."""
        return DowngradeFairqueueOp(self.after, self.before, self.schema)


@Operations.register_operation("downgrade_fairqueue")
class DowngradeFairqueueOp(_LadderOp):
    """Make an older version of an installed one; the inverse is :class:`UpgradeFairqueueOp`.

    Example:
        >>> DowngradeFairqueueOp(2, 1).reverse().to_diff_tuple()  # doctest: +SKIP
        ('upgrade_fairqueue', 1, 2, None)
    """

    verb = "downgrade_fairqueue"

    @classmethod
    def downgrade_fairqueue(cls, operations: Operations, new: int, old: int, schema: str | None = None) -> None:
        """Bring an installation back to an older version, in the migration's transaction; messages stay.

        What only the newer version can keep is lost.

        Args:
            operations: Alembic's context.
            new: The version that is installed.
            old: The version that it becomes.
            schema: The schema that holds it. None is the connection's default schema.

        Raises:
            ValueError: A version is not known, *old* is not older, the schema's name cannot be kept, or the database is
                not PostgreSQL.
            SchemaMismatch: The schema does not hold *new*. Nothing was changed.

        Example:
            >>> op.downgrade_fairqueue(2, 1)  # doctest: +SKIP
        """
        operations.invoke(cls(new, old, schema))

    def statements(self) -> Iterator[str]:
        """The guard, the functions that differ, the changes of the tables taken back."""
        return downgrade_statements(self.before, self.after, self.schema)

    def reverse(self) -> UpgradeFairqueueOp:
        """The operation that goes forward again."""
        return UpgradeFairqueueOp(self.after, self.before, self.schema)


@Operations.register_operation("repair_fairqueue")
class RepairFairqueueOp(_InstallationOp):
    """Bring back the functions and triggers of an installed version; there is nothing to do to take that back.

    Attributes:
        reasons: What was found to differ, a line each, printed as comments above the call.

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
        """Make the functions of an installation what its version has, in the migration's transaction.

        Missing functions are made and changed ones replaced. Others that have the name of one of ours are dropped.
        Triggers that are missing, changed or disabled are made again. Tables are left alone otherwise, and who may call
        the functions stays.

        Args:
            operations: Alembic's context.
            version: The version that is installed.
            schema: The schema that holds it. None is the connection's default schema.

        Raises:
            ValueError: The version is not known, the schema's name cannot be kept, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold this version. Nothing was changed.

        Example:
            >>> op.execute("drop function fq_wake")
            >>> op.repair_fairqueue(version=1)
        """
        operations.invoke(cls(version, schema))

    def statements(self) -> Iterator[str]:
        """The guard, the functions that stand in the way dropped, every function made or replaced."""
        return repair_statements(self.version, self.schema)

    def reverse(self) -> NothingOp:
        """Nothing: the hand-made change is not kept anywhere."""
        return NothingOp()


class NothingOp(MigrateOperation):
    """No operation: nothing takes a repair back."""

    def reverse(self) -> NothingOp:
        """Nothing as well."""
        return self

    def to_diff_tuple(self) -> tuple[str]:
        """The operation as Alembic's comparison prints it."""
        return ("nothing",)


@Operations.implementation_for(CreateFairqueueOp)
@Operations.implementation_for(DropFairqueueOp)
@Operations.implementation_for(UpgradeFairqueueOp)
@Operations.implementation_for(DowngradeFairqueueOp)
@Operations.implementation_for(RepairFairqueueOp)
def run(operations: Operations, operation: FairqueueOp) -> None:
    """Send the statements of an operation, or write them into the script."""
    send(operations.migration_context, f"op.{operation.verb}()", operation.schema, operation.statements())


@Operations.implementation_for(NothingOp)
def run_nothing(_operations: Operations, _operation: NothingOp) -> None:
    """Do nothing."""
