"""Grants: rights on the installation that are more than the grants stand for, or less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import plural
from sqlalchemy_fairqueue.sql.files import versions
from sqlalchemy_fairqueue.sql.grants import PUBLIC, compared_rights, may_read_grants, read_grants, read_privileges
from sqlalchemy_fairqueue.sql.schema import quoted, schema_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext
    from sqlalchemy_fairqueue.sql.grants import Privilege, RoleRights

_HARMLESS = {("schema", "usage")}


def check_grants(context: CheckContext) -> Iterator[Finding]:
    """Rights of other roles than the owner that no grant stands for, and grants that do not give what they say.

    Nothing is found where the role may not read the grants. An object in ``--allow`` is a role: ``grant app_web``.
    """
    if context.version not in versions() or not may_read_grants(context.connection, context.schema):
        return
    grants = read_grants(context.connection, context.schema)
    privileges = read_privileges(context.connection, context.schema)
    found = compared_rights(context.version, grants, privileges)
    wrong = [one for one in found if not one.as_granted and f"grant {one.role}" not in context.allowed]
    for one in wrong:
        yield from _findings(context.schema, one, [held for held in privileges if held.role == one.role])
    if not wrong:
        number = len({one.grant.role for one in grants})
        yield Finding("grants", Level.OK, f"{plural(number, 'role')} with grants, and rights that are as granted")


def _findings(schema: str, rights: RoleRights, held: list[Privilege]) -> Iterator[Finding]:
    who = "PUBLIC, which is every role," if rights.role == PUBLIC else f"role {rights.role!r}"
    to = "public" if rights.role == PUBLIC else quoted(rights.role)
    values = {
        "role": rights.role, "kinds": [one.kind for one in rights.grants], "lacking": list(rights.lacking),
        "beyond": list(rights.beyond), "others": list(rights.others),
    }  # fmt: skip
    if not rights.role_exists:
        yield Finding(
            "grants", Level.WARNING, f"a role with grants was dropped; its number was {rights.role}",
            f"op.revoke_fairqueue({rights.role!r}{schema_argument(schema)}) in a migration removes its rows", values,
        )  # fmt: skip
        return
    if rights.lacking:
        yield Finding(
            "grants", Level.PROBLEM,
            f"{who} lacks what it was granted: execute on {', '.join(rights.lacking)}",
            "\n".join(_grant(schema, grant_arguments) for grant_arguments in _arguments(rights)), values,
        )  # fmt: skip
    if rights.beyond:
        yield Finding(
            "grants", Level.WARNING,
            f"{who} may execute what no grant of its stands for: {', '.join(rights.beyond)}",
            "\n".join(f"revoke execute on function {quoted(schema)}.{name} from {to};" for name in rights.beyond),
            values,
        )  # fmt: skip
    for one in held:
        if one.kind == "function":
            continue
        kept = [right for right in one.privileges if (one.kind, right) not in _HARMLESS]
        if not kept:
            continue
        # Who may create in the schema can put functions beside ours; who writes to tables goes past every check.
        reads = set(kept) == {"select"}
        name = quoted(schema) if one.kind == "schema" else f"{quoted(schema)}.{quoted(one.name)}"
        what = f"{', '.join(kept)} on {one.kind} {one.name}"
        yield Finding(
            "grants", Level.WARNING if reads else Level.PROBLEM, f"{who} has a right that no grant gives: {what}",
            f"revoke {', '.join(kept)} on {one.kind} {name} from {to};", values,
        )  # fmt: skip


def _arguments(rights: RoleRights) -> list[str]:
    return [", ".join(one.arguments) for one in rights.grants]


def _grant(schema: str, arguments: str) -> str:
    return f"op.grant_fairqueue({arguments}{schema_argument(schema)})"
