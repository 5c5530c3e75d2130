"""Declaration of the grants that migrations are to make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql import RoleGrant, named_schema

if TYPE_CHECKING:
    from sqlalchemy import MetaData


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
