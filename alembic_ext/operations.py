"""The operations as values: each knows its inverse and the statements it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic.operations import MigrateOperation, Operations

from alembic_ext.sending import send
from sqlalchemy_fairqueue.sql import drop_statements, install_statements

if TYPE_CHECKING:
    from collections.abc import Iterator


class FairqueueOp(MigrateOperation):
    """An operation on an installation of fairqueue: a version, and the schema that holds it.

    Attributes:
        version: The version of the schema, never "the latest", so that a migration means the same for ever.
        schema: The schema's name, or None for the connection's default schema.

    Raises:
        ValueError: The version is not known, or PostgreSQL cannot keep the schema's name.
    """

    def __init__(self, version: int = 1, schema: str | None = None) -> None:
        self.version = version
        self.schema = schema
        next(self.statements())

    def statements(self) -> Iterator[str]:
        """The statements of the operation, in order, each to be sent verbatim."""
        raise NotImplementedError

    def to_diff_tuple(self) -> tuple[str, int, str | None]:
        """The operation as Alembic's comparison prints it."""
        return (type(self).verb, self.version, self.schema)

    verb = ""


@Operations.register_operation("create_fairqueue")
class CreateFairqueueOp(FairqueueOp):
    """Install fairqueue; the inverse is :class:`DropFairqueueOp`."""

    verb = "create_fairqueue"

    @classmethod
    def create_fairqueue(cls, operations: Operations, version: int = 1, schema: str | None = None) -> None:
        """Install fairqueue's tables and functions into an existing schema, in the migration's transaction.

        Args:
            operations: Alembic's context.
            version: The version to install.
            schema: The schema to install into; it must exist. None is the connection's default schema.

        Raises:
            ValueError: The version is not known, the schema's name cannot be kept, or the database is not PostgreSQL.
            SchemaMismatch: The schema is missing, or names that fairqueue needs are taken in it. Nothing was changed.
        """
        operations.invoke(cls(version, schema))

    def statements(self) -> Iterator[str]:
        """The guard, the tables and the functions."""
        return install_statements(self.version, self.schema)

    def reverse(self) -> DropFairqueueOp:
        """The operation that takes away what this one installs."""
        return DropFairqueueOp(self.version, self.schema)


@Operations.register_operation("drop_fairqueue")
class DropFairqueueOp(FairqueueOp):
    """Take fairqueue away; the inverse is :class:`CreateFairqueueOp`."""

    verb = "drop_fairqueue"

    @classmethod
    def drop_fairqueue(cls, operations: Operations, version: int = 1, schema: str | None = None) -> None:
        """Drop fairqueue's functions and tables with every message in them, in the migration's transaction.

        Args:
            operations: Alembic's context.
            version: The version that is installed.
            schema: The schema that holds it, which stays. None is the connection's default schema.

        Raises:
            ValueError: The version is not known, the schema's name cannot be kept, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold this version. Nothing was changed.
        """
        operations.invoke(cls(version, schema))

    def statements(self) -> Iterator[str]:
        """The guard, then the drops of the functions and of the tables."""
        return drop_statements(self.version, self.schema)

    def reverse(self) -> CreateFairqueueOp:
        """The operation that installs what this one takes away."""
        return CreateFairqueueOp(self.version, self.schema)


@Operations.implementation_for(CreateFairqueueOp)
@Operations.implementation_for(DropFairqueueOp)
def run(operations: Operations, operation: FairqueueOp) -> None:
    """Send the statements of an operation, or write them into the script."""
    send(operations.migration_context, f"op.{operation.verb}()", operation.statements())
