"""Grants: the mixin of their table, and the declaration of those that migrations are to make."""

from __future__ import annotations

# ruff: noqa: N805 - a declared attribute is given the class
from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, CheckConstraint, PrimaryKeyConstraint, Text, false
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.types import RoleName
from sqlalchemy_fairqueue.sql import KINDS, RoleGrant, named_schema

if TYPE_CHECKING:
    from sqlalchemy import MetaData


class GrantMixin(FairqueueMixin):
    """A kind of work that a role was granted, with its bounds. The rights themselves are privileges on functions.

    ``role`` is the role's name as PostgreSQL prints it, in quotes where it needs them. ``queues`` and ``channels`` None
    are all.
    """

    __fairqueue_verbs__ = "use op.grant_fairqueue(...) and op.revoke_fairqueue(...) in a migration"
    __tablename__ = "fq_grant"

    role: Mapped[str] = mapped_column(RoleName)
    kind: Mapped[str] = mapped_column(Text(collation="C"))
    queues: Mapped[list[str] | None] = mapped_column(ARRAY(Text(collation="C")))
    channels: Mapped[list[str] | None] = mapped_column(ARRAY(Text(collation="C")))
    usage_given: Mapped[bool] = mapped_column(Boolean, server_default=false())

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:
        """Constraints under the names that the installation gives them."""
        kinds = ", ".join(f"'{kind}'" for kind in KINDS)
        bounds = "cardinality(queues) >= 1 and cardinality(channels) >= 1"
        return (
            PrimaryKeyConstraint("role", "kind", name=conv("fq_grant_pkey")),
            CheckConstraint(f"kind in ({kinds})", name=conv("fq_grant_kind_check")),
            CheckConstraint(bounds, name=conv("fq_grant_bounds_check")),
            {"schema": cls.__fairqueue_schema__},
        )


def declare_grants(metadata: MetaData, *grants: RoleGrant, schema: str | None = None) -> None:
    """Say which grants an installation is to have, so that ``alembic revision --autogenerate`` writes the operations.

    They are all of them: autogenerate revokes those of the database that are not declared. Without a declaration it
    leaves grants alone. Calls for the same schema add up.

    Args:
        metadata: The MetaData that ``env.py`` compares.
        grants: ``RoleGrant("app_web", "producer")`` and so on. None: no role has a grant.
        schema: The schema that fairqueue is installed in. None is the schema of the MetaData, and without one the
            connection's default schema.

    Raises:
        ValueError: A role has two grants of one kind.

    Example:
        >>> declare_grants(MetaData(), RoleGrant("web", "producer"), RoleGrant("worker", "consumer"))
    """
    declared: dict[str | None, tuple[RoleGrant, ...]] = metadata.info.setdefault("fairqueue_grants", {})
    target = schema or metadata.schema
    together = {(one.role, one.kind): one for one in declared.get(target, ())}
    for grant in grants:
        known = together.setdefault((grant.role, grant.kind), grant)
        if known != grant:
            problem = (
                f"role {grant.role!r} has two grants as {grant.kind} in {named_schema(target)}, {known} and {grant}; "
                "declare one, with the queues and channels of both"
            )
            raise ValueError(problem)
    declared[target] = tuple(together.values())
