"""Privileges of the connected role, and the owners of the history's partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level, Role
from sqlalchemy_fairqueue.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_ALL = ("select", "insert", "update", "delete")
_ALL_TABLES = (
    "fq_queue", "fq_queue_state", "fq_channel", "fq_channel_state", "fq_message", "fq_signal", "fq_lease",
    "fq_dead_letter", "fq_history", "fq_history_default", "fq_pruned_history", "fq_load",
)  # fmt: skip
ROLE_PRIVILEGES: dict[Role, dict[str, tuple[str, ...]]] = {
    Role.PRODUCER: {
        "fq_queue": ("select",),
        "fq_channel": ("select", "insert"),
        "fq_channel_state": ("select", "insert"),
        "fq_message": ("select", "insert"),
        "fq_signal": ("select", "insert"),
        "fq_lease": ("select",),
    },
    Role.CONSUMER: {
        "fq_queue": ("select", "insert", "update"),
        "fq_queue_state": ("select", "insert", "update"),
        "fq_channel": ("select", "insert"),
        "fq_channel_state": ("select", "insert", "update"),
        "fq_message": _ALL,
        "fq_signal": _ALL,
        "fq_lease": _ALL,
        "fq_dead_letter": _ALL,
        "fq_history": ("select", "insert"),
        "fq_load": ("select", "insert", "update"),
    },
    Role.MONITOR: dict.fromkeys(_ALL_TABLES, ("select",)),
}
"""Privileges that the functions need on each table, by role: they run with the privileges of their caller.

A producer's are those without which nothing can be enqueued; see OPTIONAL_PRIVILEGES.
"""
OPTIONAL_PRIVILEGES: dict[str, dict[str, tuple[str, ...]]] = {
    "replace messages": {"fq_message": ("update",)},
    "cancel messages": {"fq_message": ("update", "delete")},
}
"""Privileges that a producer may lack, by what it cannot do then."""


def check_privileges(context: CheckContext) -> Iterator[Finding]:
    """Usage of the schema, execution of the functions, privileges on the tables: as the role's work needs them."""
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
    owner = context.execute("history_owner", schema=context.schema).scalar_one_or_none()
    recorded = context.execute("recording_queues").scalar_one()
    if owner is not None and recorded:
        yield Finding(
            "privileges", Level.WARNING,
            f"only {owner!r} owns the history, so that workers with this role cannot make or drop its partitions",
            f"let one worker run as {owner!r}, or run 'fairqueue history prune' as {owner!r} once a day",
            {"owner": owner},
        )  # fmt: skip


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
        for verb, rights in OPTIONAL_PRIVILEGES.items():
            lacking = [f"{privilege} on {table}" for table, privilege in _missing_on_tables(context, rights)]
            if lacking:
                yield f"{verb} ({', '.join(lacking)})"


def _missing(context: CheckContext) -> Iterator[tuple[str, str]]:
    schema, rights = context.schema, ROLE_PRIVILEGES[context.role]
    for table, privilege in _missing_on_tables(context, rights):
        yield privilege, f"table {quoted(schema)}.{table}"
    monitors = context.role is Role.MONITOR
    tables = [table for table, its in rights.items() if monitors or "insert" in its]
    privilege, kinds = ("select", ["a", "i"]) if monitors else ("usage", ["a"])
    named = {"schema": schema, "tables": tables, "kinds": kinds, "privilege": privilege}
    for name in context.execute("missing_sequence_privileges", **named).scalars():
        yield privilege, f"sequence {quoted(schema)}.{quoted(name)}"
    for name in context.execute("missing_function_privileges", schema=schema).scalars():
        yield "execute", f"function {name}"


def _missing_on_tables(context: CheckContext, rights: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Tables of the installed version, and privileges on them that the role lacks."""
    wanted = [(table, privilege) for table, its in rights.items() for privilege in its]
    rows = context.execute(
        "missing_table_privileges",
        schema=context.schema,
        tables=[table for table, _ in wanted],
        privileges=[privilege for _, privilege in wanted],
    )
    return [(row.table, row.privilege) for row in rows]
