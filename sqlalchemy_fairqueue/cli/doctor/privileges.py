"""What the connected role may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level, Role
from sqlalchemy_fairqueue.sql import quoted
from sqlalchemy_fairqueue.statements.building import qualifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

_ALL = ("select", "insert", "update", "delete")
_ALL_TABLES = (
    "fq_queue", "fq_queue_state", "fq_channel", "fq_channel_state", "fq_message", "fq_signal", "fq_lease",
    "fq_dead_letter", "fq_history", "fq_history_default", "fq_pruned_history", "fq_load",
)  # fmt: skip
RIGHTS: dict[Role, dict[str, tuple[str, ...]]] = {
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
"""What the functions do to each table, by who calls them: they run with the rights of whoever calls them.

A producer's are those without which nothing can be enqueued; see MORE.
"""
MORE: dict[str, dict[str, tuple[str, ...]]] = {
    "replace messages": {"fq_message": ("update",)},
    "cancel messages": {"fq_message": ("update", "delete")},
}
"""What a producer may be kept from, and the rights that it takes besides."""

_ROLE = text(
    "select current_user as name, has_schema_privilege(n.oid, 'usage') as usable from pg_namespace n "
    "where n.nspname = :schema"
)
_TABLES = text(
    "select c.relname as table, r.privilege from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "join unnest(cast(:tables as text[]), cast(:privileges as text[])) r(name, privilege) on r.name = c.relname "
    "where n.nspname = :schema and c.relkind in ('r', 'p') and not has_table_privilege(c.oid, r.privilege) "
    "order by c.relname, r.privilege"
)
_FUNCTIONS = text(
    "select p.oid::regprocedure::text as function from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
    "where n.nspname = :schema and starts_with(p.proname, 'fq_') and not has_function_privilege(p.oid, 'execute') "
    "order by 1"
)
# Whoever inserts needs a right on the sequence of a serial ("a"), and none on an identity's ("i"); who looks, on both.
_SEQUENCES = text(
    "select s.relname as sequence from pg_depend d "
    "join pg_class s on s.oid = d.objid and s.relkind = 'S' "
    "join pg_class c on c.oid = d.refobjid and c.relname = any(:tables) "
    "join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = :schema and d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass "
    "and d.deptype = any(:kinds) and "
    # Tested in this order, whatever the planner prefers.
    "case when s.relkind = 'S' then not has_sequence_privilege(s.oid, :privilege) else false end order by 1"
)
_OWNER = text(
    "select pg_get_userbyid(c.relowner) as owner from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = :schema and c.relname = 'fq_history' and not pg_has_role(c.relowner, 'usage') "
)
# Whoever runs the housekeeping owns what it makes, where the functions do not give it to the history's owner.
_STRANGE = text(
    "select cn.nspname as schema, c.relname as partition, pg_get_userbyid(c.relowner) as owner, "
    "pg_get_userbyid(p.relowner) as wanted from pg_inherits i join pg_class c on c.oid = i.inhrelid "
    "join pg_namespace cn on cn.oid = c.relnamespace join pg_class p on p.oid = i.inhparent "
    "join pg_namespace n on n.oid = p.relnamespace "
    "where n.nspname = :schema and p.relname = 'fq_history' and c.relowner <> p.relowner order by c.relname"
)


def check_privileges(examined: Examination) -> Iterator[Finding]:
    """Usage of the schema, execution of the functions, rights on the tables: those that the role's work takes."""
    schema = examined.schema
    role = examined.connection.execute(_ROLE, {"schema": schema}).one()
    values = {"role": role.name, "kind": examined.role.value}
    missing = list(_missing(examined)) if role.usable else [("usage", f"schema {quoted(schema)}")]
    if not missing:
        besides = list(_besides(examined))
        said = f", and may not {'; nor '.join(besides)}" if besides else ""
        message = f"role {role.name!r} may do what a {examined.role} needs{said}"
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
        f"role {role.name!r} lacks what a {examined.role} needs: {'; '.join(lacking)}",
        "\n".join(grants),
        values | {"missing": lacking},
    )


def check_ownership(examined: Examination) -> Iterator[Finding]:
    """Whether the housekeeping of a worker with this role could make and drop partitions, and the owner drop all."""
    yield from _strange(examined)
    if examined.role is not Role.CONSUMER:
        return
    owner = examined.connection.execute(_OWNER, {"schema": examined.schema}).scalar_one_or_none()
    recorded = examined.connection.scalar(
        text(f"select count(*) from {qualifier(examined.schema)}fq_queue where history")  # noqa: S608 (quoted)
    )
    if owner is not None and recorded:
        yield Finding(
            "privileges", Level.WARNING,
            f"only {owner!r} owns the history, so that workers with this role cannot make or drop its partitions",
            f"let one worker run as {owner!r}, or run 'fairqueue history prune' as {owner!r} once a day",
            {"owner": owner},
        )  # fmt: skip


def _strange(examined: Examination) -> Iterator[Finding]:
    found = examined.connection.execute(_STRANGE, {"schema": examined.schema}).all()
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


def _besides(examined: Examination) -> Iterator[str]:
    """What a producer may be kept from, and is."""
    if examined.role is Role.PRODUCER:
        for verb, rights in MORE.items():
            lacking = [f"{privilege} on {table}" for table, privilege in _lacking(examined, rights)]
            if lacking:
                yield f"{verb} ({', '.join(lacking)})"


def _missing(examined: Examination) -> Iterator[tuple[str, str]]:
    connection, schema, rights = examined.connection, examined.schema, RIGHTS[examined.role]
    for table, privilege in _lacking(examined, rights):
        yield privilege, f"table {quoted(schema)}.{table}"
    looks = examined.role is Role.MONITOR
    tables = [table for table, its in rights.items() if looks or "insert" in its]
    privilege, kinds = ("select", ["a", "i"]) if looks else ("usage", ["a"])
    named = {"schema": schema, "tables": tables, "kinds": kinds, "privilege": privilege}
    for name in connection.scalars(_SEQUENCES, named):
        yield privilege, f"sequence {quoted(schema)}.{quoted(name)}"
    for name in connection.scalars(_FUNCTIONS, {"schema": schema}):
        yield "execute", f"function {name}"


def _lacking(examined: Examination, rights: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Tables of the installed version, and what may not be done to them."""
    wanted = [(table, privilege) for table, its in rights.items() for privilege in its]
    named = {
        "schema": examined.schema,
        "tables": [table for table, _ in wanted],
        "privileges": [privilege for _, privilege in wanted],
    }
    return [(row.table, row.privilege) for row in examined.connection.execute(_TABLES, named)]
