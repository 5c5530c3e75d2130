"""Privileges of the connected role, and the owners of the history's partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level, Role
from sqlalchemy_fairqueue.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

ALL_TABLES = (
    "fq_queue", "fq_queue_state", "fq_channel", "fq_channel_state", "fq_message", "fq_signal", "fq_lease",
    "fq_dead_letter", "fq_history", "fq_history_default", "fq_pruned_history", "fq_load",
)  # fmt: skip
"""Every table of the installation, apart from the days of the history."""
_PRODUCER = ("fq_version", "fq_now", "fq_enqueue", "fq_max_backlog")
_MONITOR = ("fq_version", "fq_now", "fq_queues", "fq_stats", "fq_channel_stats", "fq_gate_key")
ROLE_FUNCTIONS: dict[Role, tuple[str, ...]] = {
    Role.PRODUCER: _PRODUCER,
    Role.CONSUMER: (
        *_PRODUCER, *_MONITOR[2:],
        "fq_dequeue", "fq_hear", "fq_wait", "fq_unwait", "fq_extend", "fq_heartbeat", "fq_end_leases",
        "fq_held", "fq_holder",
        "fq_complete", "fq_retry", "fq_release", "fq_bury", "fq_cancel", "fq_hold_deliveries", "fq_hold_messages",
        "fq_hold_queue", "fq_hold_channels", "fq_leased", "fq_configure_queue", "fq_configure_channel",
        "fq_limit_queue", "fq_record_queue", "fq_pause", "fq_resume",
        "fq_purge_channel", "fq_redrive", "fq_purge_dead", "fq_keep_history",
        "fq_prune_dead_letters", "fq_retain_dead_letters",
    ),
    Role.MONITOR: _MONITOR,
}  # fmt: skip
"""Functions that a role calls. They run with the rights of their owner."""
ROLE_TABLES: dict[Role, tuple[str, ...]] = {Role.PRODUCER: (), Role.CONSUMER: (), Role.MONITOR: ALL_TABLES}
"""Tables that a role reads without a function."""
OPTIONAL_FUNCTIONS: dict[str, tuple[str, ...]] = {"cancel messages": ("fq_cancel", "fq_hold_messages")}
"""Functions that a producer may lack, by what it cannot do then."""


def check_privileges(context: CheckContext) -> Iterator[Finding]:
    """Usage of the schema, execution of the functions, reading of tables: as the role's work needs them."""
    schema = context.schema
    role = context.execute("schema_usage", schema=schema).one()
    values = {"role": role.name, "kind": context.role.value}
    missing = list(_missing(context)) if role.usable else [("usage", f"schema {quoted(schema)}")]
    if not missing:
        refused = list(_refused_verbs(context))
        note = f", and may not {'; nor '.join(refused)}" if refused else ""
        message = f"role {role.name!r} may do what a {context.role} needs{note}"
        yield Finding("privileges", Level.OK, message, None, values)
        return
    rights: dict[str, list[str]] = {}
    for right, what in missing:
        rights.setdefault(what, []).append(right)
    lacking = [f"{', '.join(names)} on {what}" for what, names in rights.items()]
    grants = [f"grant {right} to {quoted(role.name)};" for right in lacking]
    yield Finding(
        "privileges",
        Level.PROBLEM,
        f"role {role.name!r} lacks what a {context.role} needs: {'; '.join(lacking)}",
        "\n".join(grants),
        values | {"missing": lacking},
    )


def check_ownership(context: CheckContext) -> Iterator[Finding]:
    """Whether a worker with this role could make and drop partitions, and the history's owner drop them all."""
    yield from _foreign_partitions(context)
    if context.role is not Role.CONSUMER:
        return


def _foreign_partitions(context: CheckContext) -> Iterator[Finding]:
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


def _refused_verbs(context: CheckContext) -> Iterator[str]:
    """The optional verbs that a producer cannot use, with the privileges that it lacks."""
    if context.role is Role.PRODUCER:
        for verb, functions in OPTIONAL_FUNCTIONS.items():
            if lacking := _missing_functions(context, functions):
                yield f"{verb} (execute on {', '.join(lacking)})"


def _missing(context: CheckContext) -> Iterator[tuple[str, str]]:
    schema, tables = context.schema, list(ROLE_TABLES[context.role])
    for table in context.execute("missing_table_privileges", schema=schema, tables=tables).scalars():
        yield "select", f"table {quoted(schema)}.{table}"
    for name in context.execute("missing_sequence_privileges", schema=schema, tables=tables).scalars():
        yield "select", f"sequence {quoted(schema)}.{quoted(name)}"
    for name in _missing_functions(context, ROLE_FUNCTIONS[context.role]):
        yield "execute", f"function {name}"


def _missing_functions(context: CheckContext, functions: Sequence[str]) -> list[str]:
    """Functions of the installed version that the role may not execute, with their parameters."""
    rows = context.execute("missing_function_privileges", schema=context.schema, functions=list(functions))
    return list(rows.scalars())
