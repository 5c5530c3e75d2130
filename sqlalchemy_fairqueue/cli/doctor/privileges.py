"""Privileges of the connected role, and the owners of the history's partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.grants import role_functions
from sqlalchemy_fairqueue.sql.schema import quoted, schema_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

ALL_TABLES = (
    "fq_channel",
    "fq_channel_plan",
    "fq_channel_state",
    "fq_dead_letter",
    "fq_epoch",
    "fq_gate",
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
    "fq_schedule",
    "fq_schedule_slot",
    "fq_signal",
    "fq_stop_request",
)  # fmt: skip
"""Every table of the installation, apart from the days of the history."""


def check_privileges(context: CheckContext) -> Iterator[Finding]:
    """Usage of the schema and execution of the functions: as the role's work needs them."""
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
        f"op.grant_fairqueue({role.name!r}, {kind!r}{schema_argument(schema)}) in a migration",
        values | {"missing": missing},
    )


def _a(kind: str) -> str:
    return f"{'an' if kind.startswith('o') else 'a'} {kind}"


def check_ownership(context: CheckContext) -> Iterator[Finding]:
    """Whether the owner of the history could drop all of its partitions."""
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
