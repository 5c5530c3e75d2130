"""Examines an installation by the checks that its version and the role's rights allow, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqlalchemy_fairqueue.database.errors import sqlstate_of, too_old
from sqlalchemy_fairqueue.doctor.findings import Check, CheckContext, Finding, Level, Role
from sqlalchemy_fairqueue.doctor.installation import find_installation, is_unreachable
from sqlalchemy_fairqueue.doctor.queues import (
    check_dispatchers,
    check_kinds,
    check_leases,
    check_queues,
    check_schedules,
    check_waits,
)
from sqlalchemy_fairqueue.doctor.rights import check_grants, check_ownership, check_privileges, check_row_security
from sqlalchemy_fairqueue.doctor.schema import (
    check_drift,
    check_history,
    check_sequences,
    check_states,
    check_times,
    check_version,
)
from sqlalchemy_fairqueue.doctor.server import (
    check_clock,
    check_connections,
    check_growth,
    check_platform,
    check_server,
    check_sizes,
    check_snapshots,
    check_vacuum,
)
from sqlalchemy_fairqueue.errors import FairQueueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

_CHECKS: tuple[Check, ...] = (
    check_server, check_platform, check_clock, check_version, check_drift, check_privileges, check_ownership,
    check_grants, check_row_security, check_sequences, check_connections, check_sizes, check_growth, check_vacuum,
    check_snapshots, check_queues, check_kinds, check_dispatchers, check_leases, check_waits, check_times,
    check_history, check_states, check_schedules,
)  # fmt: skip
_NO_PRIVILEGE = "42501"
_READ_ALL = "run doctor as the owner of the tables"
_SETTINGS = (
    text("set transaction read only"),
    text("set local statement_timeout = '60s'"),
    # Otherwise a superuser could call functions that another role has created in a schema of the search_path.
    text("set local search_path = pg_catalog, pg_temp"),
    # The driver reads times and durations in these formats alone; the role or the database may have set others.
    text("set local datestyle = 'ISO'"),
    text("set local intervalstyle = 'postgres'"),
)


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings about an installation, in the order of the checks."""

    schema: str
    version: int
    findings: Sequence[Finding]

    @property
    def worst(self) -> Level:
        return max(finding.level for finding in self.findings)


def examine(
    connection: Connection,
    schema: str | None,
    queue: str | None = None,
    *,
    max_age: timedelta = timedelta(minutes=5),
    allowed: Sequence[str] = (),
    role: Role = Role.CONSUMER,
) -> Examination:
    """Check an installation and change nothing; this may take seconds. :class:`CheckContext` explains the arguments.

    The connection must be in READ COMMITTED, outside of a transaction. Raise Unusable if there is no installation or
    if the connection's database role may not use it. Raise SQLAlchemyError if the database is away.
    """
    with connection.begin():
        schema, version = find_installation(connection, schema, role.value)
    context = CheckContext(connection, schema, version, queue, max_age, allowed, role)
    if too_old(version, schema):
        checks, left_out = [one for one in _CHECKS if one.any_version], list[Check]()
    else:
        checks, left_out = _possible_checks(context)
    findings = [finding for check in checks for finding in _findings(context, check)]
    if left_out:
        words = ", ".join(check.subject for check in left_out)
        message = f"not checked, for which the role lacks privileges that its work does not need: {words}"
        findings.append(Finding("privileges", Level.OK, message, _READ_ALL, {"unchecked": words.split(", ")}))
    return Examination(schema, version, findings)


def _possible_checks(context: CheckContext) -> tuple[list[Check], list[Check]]:
    with context.connection.begin():
        left_out = [check for check in _CHECKS if not _is_possible(context, check)]
    return [check for check in _CHECKS if check not in left_out], left_out


def _is_possible(context: CheckContext, check: Check) -> bool:
    schema, functions, tables = context.schema, list(check.functions), list(check.tables)
    return not (
        (functions and context.execute("missing_function_privileges", schema=schema, functions=functions).all())
        or (tables and context.execute("missing_table_privileges", schema=schema, tables=tables).all())
    )


def _findings(context: CheckContext, check: Check) -> list[Finding]:
    connection = context.connection
    try:
        with connection.begin():
            for statement in _SETTINGS:
                connection.execute(statement)
            return list(check(context))
    except Exception as error:
        if isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and is_unreachable(error)):
            raise
        problem = " ".join(str(getattr(error, "orig", None) or error).split())
        if not isinstance(error, (DBAPIError, FairQueueError)):
            problem = f"{type(error).__name__}: {problem}"
        remedy = _READ_ALL if sqlstate_of(error) == _NO_PRIVILEGE else None
        return [Finding(check.subject, Level.WARNING, f"could not be checked: {problem}", remedy)]
