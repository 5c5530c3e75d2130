"""Operations that grant a role a kind of work on an installation, and revoke it."""

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
    """Grant a role a kind of work. The inverse revokes the grant or, if *before* is given, restores that earlier grant.

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
        """Grant a role a kind of work, in the migration's transaction.

        If the role has the grant already, its *queues* and *channels* are replaced. The role gets ``usage`` of the
        schema and ``execute`` on the functions of the kind, and no right on a table. The grant survives upgrades and
        downgrades.

        Args:
            role: An existing role: its name without quotes.
            kind: ``"producer"``, ``"consumer"``, ``"monitor"``, ``"operator"`` or ``"loader"``.
            queues: The only queues that the grant applies to, by default all. A monitor's grant always applies to all.
            channels: The only channels that the grant applies to, by default all; only for a producer.
            schema: The schema of the installation, by default the connection's default schema.

        Raises:
            ValueError, TypeError: A value cannot be granted, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold a version that this library knows. Nothing was changed.

        Example:
            >>> op.execute("create role web")
            >>> op.grant_fairqueue("web", "producer", queues=["documents"])
        """
        operations.invoke(cls(RoleGrant(role, kind, queues, channels), schema))

    def statements(self) -> Iterator[str]:
        return grant_statements(self.grant, self.schema)

    @property
    def versions(self) -> tuple[int, ...]:
        return ()

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.grant.arguments

    def reverse(self) -> GrantFairqueueOp | RevokeFairqueueOp:
        if self.before is not None:
            return GrantFairqueueOp(self.before, self.schema, before=self.grant)
        return RevokeFairqueueOp(self.grant.role, self.grant.kind, self.schema, before=self.grant)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return (self.verb, self.grant, self.schema)


@Operations.register_operation("revoke_fairqueue")
class RevokeFairqueueOp(FairqueueOp):
    """Revoke a kind of work, or all. The inverse restores the grant *before*, or does nothing if *before* is None.

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
        """Revoke a kind of work from a role, in the migration's transaction. A role without the grant is no error.

        The functions of the kind are revoked even if they were granted by hand, except those that the role's other
        grants need. ``usage`` of the schema is revoked with the role's last grant, if a grant gave it. Grants of the
        kind to roles that were dropped are removed too.

        Args:
            role: Its name without quotes.
            kind: The kind of work, by default all.
            schema: The schema of the installation, by default the connection's default schema.

        Raises:
            ValueError: The role's name is impossible, the kind is unknown, or the database is not PostgreSQL.
            SchemaMismatch: The schema does not hold a version that this library knows. Nothing was changed.

        Example:
            >>> op.execute("create role web")
            >>> op.grant_fairqueue("web", "producer")
            >>> op.revoke_fairqueue("web", "producer")
        """
        operations.invoke(cls(role, kind, schema))

    def statements(self) -> Iterator[str]:
        return revoke_statements(self.role, self.kind, self.schema)

    @property
    def versions(self) -> tuple[int, ...]:
        return ()

    @property
    def arguments(self) -> tuple[str, ...]:
        return (repr(self.role),) if self.kind is None else (repr(self.role), repr(self.kind))

    def reverse(self) -> MigrateOperation:
        return NothingOp() if self.before is None else GrantFairqueueOp(self.before, self.schema)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return (self.verb, self.role, self.kind, self.schema)


Operations.implementation_for(GrantFairqueueOp)(run)
Operations.implementation_for(RevokeFairqueueOp)(run)
