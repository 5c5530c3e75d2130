"""Checks privileges of the connected role, grants of all roles, owners of partitions, and row level security."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.doctor.findings import Finding, Level, Role, check
from sqlalchemy_fairqueue.doctor.installation import current_role, grant
from sqlalchemy_fairqueue.formats import plural
from sqlalchemy_fairqueue.sql.files import latest_version, versions
from sqlalchemy_fairqueue.sql.grants import (
    PUBLIC,
    compared_rights,
    may_read_grants,
    read_grants,
    read_privileges,
    role_functions,
)
from sqlalchemy_fairqueue.sql.schema import quoted, schema_argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy_fairqueue.doctor.findings import CheckContext
    from sqlalchemy_fairqueue.sql.grants import Privilege, RoleRights


ALL_TABLES = (
    "fq_audit",
    "fq_channel",
    "fq_channel_plan",
    "fq_channel_state",
    "fq_dead_letter",
    "fq_epoch",
    "fq_grant",
    "fq_group",
    "fq_group_followup",
    "fq_group_note",
    "fq_history",
    "fq_history_default",
    "fq_key_period",
    "fq_lease",
    "fq_limit",
    "fq_limit_share",
    "fq_load",
    "fq_message",
    "fq_plan",
    "fq_promotion",
    "fq_pruned_history",
    "fq_queue",
    "fq_queue_state",
    "fq_result",
    "fq_result_wait",
    "fq_round",
    "fq_sample",
    "fq_schedule",
    "fq_schedule_slot",
    "fq_signal",
    "fq_size",
    "fq_stop_request",
)  # fmt: skip
"""Every table of the installation, apart from the days of the history."""


@check()
def check_privileges(context: CheckContext) -> Iterator[Finding]:
    schema, kind = context.schema, context.role.value
    role = context.execute("schema_usage", schema=schema).one()
    values = {"role": role.name, "kind": kind}
    missing = [f"usage on schema {quoted(schema)}"]
    if role.usable:
        functions = list(role_functions(min(context.version, latest_version()), kind))
        rows = context.execute("missing_function_privileges", schema=schema, functions=functions)
        missing = [f"execute on function {name}" for name in rows.scalars()]
    if not missing:
        message = f"role {role.name!r} may do what {_a(kind)} needs"
        yield Finding("privileges", Level.OK, message, None, values)
        return
    yield Finding(
        "privileges",
        Level.PROBLEM,
        f"role {role.name!r} lacks what {_a(kind)} needs: {'; '.join(missing)}",
        f"{grant(role.name, kind, schema)} in a migration",
        values | {"missing": missing},
    )


def _a(kind: str) -> str:
    return f"{'an' if kind.startswith('o') else 'a'} {kind}"


@check()
def check_ownership(context: CheckContext) -> Iterator[Finding]:
    found = context.execute("foreign_partitions", schema=context.schema).all()
    if not found:
        return
    owners, wanted = sorted({row.owner for row in found}), found[0].wanted
    belong = "partition of the history belongs" if len(found) == 1 else "partitions of the history belong"
    yield Finding(
        "privileges", Level.WARNING,
        f"{len(found):,} {belong} to {', '.join(map(repr, owners))}, and the history to {wanted!r}, who can neither "
        "drop them when they are old nor dump them",
        "\n".join(
            f"alter table {quoted(row.schema)}.{quoted(row.partition)} owner to {quoted(wanted)};" for row in found
        ),
        {"owner": wanted, "owners": owners, "partitions": [row.partition for row in found]},
    )  # fmt: skip


_HARMLESS = {("schema", "usage")}


@check(functions=("fq_grants",))
def check_grants(context: CheckContext) -> Iterator[Finding]:
    """Find rights that roles other than the owner have without a grant, and grants that do not give what they say."""
    if context.version not in versions() or not may_read_grants(context.connection, context.schema):
        return
    grants = read_grants(context.connection, context.schema)
    privileges = read_privileges(context.connection, context.schema)
    found = compared_rights(context.version, grants, privileges)
    wrong = [one for one in found if not one.as_granted and f"grant {one.role}" not in context.allowed]
    for one in wrong:
        yield from _rights_findings(context.schema, one, [held for held in privileges if held.role == one.role])
    if not wrong:
        number = len({one.grant.role for one in grants})
        yield Finding("grants", Level.OK, f"{plural(number, 'role')} with grants, and rights that are as granted")


def _rights_findings(schema: str, rights: RoleRights, held: list[Privilege]) -> Iterator[Finding]:
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
            "\n".join(_grant_operation(schema, one.arguments) for one in rights.grants), values,
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
        # A right to read is only a warning. But a role that may create in the schema can add functions beside ours, and
        # a role that may write to tables can evade the checks of the functions.
        reads = set(kept) == {"select"}
        name = quoted(schema) if one.kind == "schema" else f"{quoted(schema)}.{quoted(one.name)}"
        what = f"{', '.join(kept)} on {one.kind} {one.name}"
        yield Finding(
            "grants", Level.WARNING if reads else Level.PROBLEM, f"{who} has a right that no grant gives: {what}",
            f"revoke {', '.join(kept)} on {one.kind} {name} from {to};", values,
        )  # fmt: skip


def _grant_operation(schema: str, arguments: Iterable[str]) -> str:
    return f"op.grant_fairqueue({', '.join(arguments)}{schema_argument(schema)})"


_ALL = ("select", "insert", "update", "delete")


@check()
def check_row_security(context: CheckContext) -> Iterator[Finding]:
    """Find tables whose row level security may hide rows from a monitor, or from the owner of the functions."""
    monitors = context.role is Role.MONITOR
    role = current_role(context.connection)
    if not monitors:
        role = context.execute("functions_owner", schema=context.schema).scalar_one_or_none() or role
    wanted = [(table, right) for table in ALL_TABLES for right in (_ALL[:1] if monitors else _ALL)]
    tables, privileges = [table for table, _ in wanted], [right for _, right in wanted]
    names = {"schema": context.schema, "role": role, "tables": tables, "privileges": privileges}
    rows = context.execute("row_security", **names).all()
    if not rows:
        return
    hidden = [row.table for row in rows]
    yield Finding(
        "privileges",
        Level.WARNING if monitors else Level.PROBLEM,
        f"row level security may hide rows of {', '.join(hidden)} from role {role!r}"
        + (
            ": what it counts may be a part"
            if monitors
            else ", with whose rights the functions run: messages that they do not see are left behind"
        ),
        "\n".join(_policies(context.schema, role, row.table, row.restrictive) for row in rows),
        {"role": role, "kind": context.role.value, "tables": hidden},
    )


def _policies(schema: str, role: str, table: str, restrictive: list[str] | None) -> str:
    if restrictive:
        names = ", ".join(map(repr, restrictive))
        return f"take {role!r} out of restrictive {names} on {table}; or: alter role {quoted(role)} bypassrls;"
    name = quoted(f"{role} sees all")
    return f"create policy {name} on {quoted(schema)}.{table} to {quoted(role)} using (true);"
