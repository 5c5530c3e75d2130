"""Operations that grant a role a kind of work on an installation, and take it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic.operations import Operations

from alembic_ext.operations import FairqueueOp, NothingOp, run
from sqlalchemy_fairqueue.sql.grants import RoleGrant, grant_statements, revoke_statements

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from alembic.operations import MigrateOperation


@Operations.register_operation("grant_fairqueue")
class GrantFairqueueOp(FairqueueOp):
    """Grant a role a kind of work; the inverse takes it back, or grants what was there before.

    Attributes:
        grant: The role, its kind of work and the bounds.
        before: The grant of this kind that the role has had until now, if that is known.

    Example:
        >>> GrantFairqueueOp(RoleGrant("web", "producer")).reverse().to_diff_tuple()
        ('revoke_fairqueue', 'web', 'producer', None)
    """

    verb = "grant_fairqueue"

    def __init__(self, grant: RoleGrant, schema: str | None = None, *, before: RoleGrant | None = None) -> None:
        self.grant = grant
        self.before = before
        super().__init__(schema)

    @classmethod
    def grant_fairqueue(  # noqa: PLR0917 - the two names come first
        cls,
        operations: Operations,
        role: str,
        kind: str,
        queues: Collection[str] | None = None,
        channels: Collection[str] | None = None,
        schema: str | None = None,
    ) -> None:
        """Let a role do a kind of work, in the migration's transaction. A grant that is there gets these bounds.

        The role gets ``usage`` of the schema and ``execute`` on the functions of the kind, and no right on a table.
        Steps between versions keep it.

        Args:
            operations: Alembic's context.
            role: The role, which must exist: its name without quotes.
            kind: ``"producer"``, ``"consumer"``, ``"monitor"``, ``"operator"`` or ``"loader"``.
            queues: The only queues that it holds for. None: all. A monitor cannot be bound.
            channels: The only channels that it holds for, of a producer. None: all.
            schema: The schema that holds fairqueue. None is the connection's default schema.

        Raises:
            ValueError: A value cannot be granted, the schema's name cannot be kept, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold a version that this library knows. Nothing was changed.

        Example:
            >>> op.execute("create role web")
            >>> op.grant_fairqueue("web", "producer", queues=["documents"])
        """
        operations.invoke(cls(RoleGrant(role, kind, queues, channels), schema))

    def statements(self) -> Iterator[str]:
        """The guard, the row and the privileges."""
        return grant_statements(self.grant, self.schema)

    @property
    def versions(self) -> tuple[int, ...]:
        """None: it holds for the version that is installed, and for those that follow."""
        return ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments as they are printed, without the schema."""
        return self.grant.arguments

    def reverse(self) -> GrantFairqueueOp | RevokeFairqueueOp:
        """The operation that takes it back, or grants what was there before."""
        if self.before is not None:
            return GrantFairqueueOp(self.before, self.schema, before=self.grant)
        return RevokeFairqueueOp(self.grant.role, self.grant.kind, self.schema, before=self.grant)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """The operation as Alembic's comparison prints it."""
        return (self.verb, self.grant, self.schema)


@Operations.register_operation("revoke_fairqueue")
class RevokeFairqueueOp(FairqueueOp):
    """Take a kind of work from a role.

    Attributes:
        role: The role.
        kind: The kind of work. None: all that it was granted.
        before: The grant that the role has had until now, if that is known: the inverse grants it.

    Example:
        >>> RevokeFairqueueOp("web", before=RoleGrant("web", "producer")).reverse().grant.kind
        'producer'
    """

    verb = "revoke_fairqueue"

    def __init__(
        self, role: str, kind: str | None = None, schema: str | None = None, *, before: RoleGrant | None = None
    ) -> None:
        self.role = role
        self.kind = kind
        self.before = before
        super().__init__(schema)

    @classmethod
    def revoke_fairqueue(
        cls, operations: Operations, role: str, kind: str | None = None, schema: str | None = None
    ) -> None:
        """Take a kind of work from a role, in the migration's transaction. Nothing happens where it has none.

        What other kinds of work of the role need stays. ``usage`` of the schema goes with the last kind, if it came
        with a grant. The rows of roles that were dropped go too.

        Args:
            operations: Alembic's context.
            role: The role: its name without quotes.
            kind: The kind of work. None: all.
            schema: The schema that holds fairqueue. None is the connection's default schema.

        Raises:
            ValueError: The kind is not known, the schema's name cannot be kept, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold a version that this library knows. Nothing was changed.

        Example:
            >>> op.execute("create role web")
            >>> op.grant_fairqueue("web", "producer")
            >>> op.revoke_fairqueue("web", "producer")
        """
        operations.invoke(cls(role, kind, schema))

    def statements(self) -> Iterator[str]:
        """The guard, the row and the privileges."""
        return revoke_statements(self.role, self.kind, self.schema)

    @property
    def versions(self) -> tuple[int, ...]:
        """None: it holds for the version that is installed."""
        return ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments as they are printed, without the schema."""
        return (repr(self.role),) if self.kind is None else (repr(self.role), repr(self.kind))

    def reverse(self) -> MigrateOperation:
        """The operation that grants it again, if it is known what it was."""
        return NothingOp() if self.before is None else GrantFairqueueOp(self.before, self.schema)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """The operation as Alembic's comparison prints it."""
        return (self.verb, self.role, self.kind, self.schema)


Operations.implementation_for(GrantFairqueueOp)(run)
Operations.implementation_for(RevokeFairqueueOp)(run)
