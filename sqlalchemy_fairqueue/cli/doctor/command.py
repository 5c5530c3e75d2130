"""``doctor``: the checks of an installation, one after the other."""

# Annotations are read when the program starts, so that they must not be postponed.
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext, Finding, Level, Role
from sqlalchemy_fairqueue.cli.doctor.gates import check_gates
from sqlalchemy_fairqueue.cli.doctor.grants import check_grants
from sqlalchemy_fairqueue.cli.doctor.history import check_history
from sqlalchemy_fairqueue.cli.doctor.privileges import check_ownership, check_privileges
from sqlalchemy_fairqueue.cli.doctor.quarantine import check_quarantine
from sqlalchemy_fairqueue.cli.doctor.queues import check_leases, check_queues, check_waits
from sqlalchemy_fairqueue.cli.doctor.row_security import check_row_security
from sqlalchemy_fairqueue.cli.doctor.schema import check_drift, check_version
from sqlalchemy_fairqueue.cli.doctor.sequences import check_sequences
from sqlalchemy_fairqueue.cli.doctor.server import check_clock, check_server
from sqlalchemy_fairqueue.cli.doctor.snapshots import check_snapshots
from sqlalchemy_fairqueue.cli.doctor.times import check_times
from sqlalchemy_fairqueue.cli.doctor.vacuum import check_vacuum
from sqlalchemy_fairqueue.cli.errors import command_error, one_line
from sqlalchemy_fairqueue.cli.formats import parse_duration
from sqlalchemy_fairqueue.cli.installation import find_installation
from sqlalchemy_fairqueue.cli.options import Options, option_parser
from sqlalchemy_fairqueue.cli.results import ExitStatus, Result
from sqlalchemy_fairqueue.cli.target import open_target
from sqlalchemy_fairqueue.database.migrations import too_old
from sqlalchemy_fairqueue.errors import clean

Check = Callable[[CheckContext], Iterator[Finding]]

_CHECKS: tuple[Check, ...] = (
    check_server, check_clock, check_version, check_drift, check_privileges, check_ownership, check_grants,
    check_row_security, check_sequences, check_vacuum, check_snapshots, check_queues, check_gates, check_leases,
    check_waits, check_times, check_history, check_quarantine,
)  # fmt: skip
_ANY_VERSION = (check_server, check_clock, check_version)
_FUNCTIONS_READ: Mapping[Check, tuple[str, ...]] = {
    check_grants: ("fq_grants",),
    check_queues: ("fq_queues", "fq_stats", "fq_now"),
    check_gates: ("fq_gate_holders",),
    check_quarantine: ("fq_queues", "fq_quarantined"),
}
"""Checks that call functions, which monitors and operators may execute."""
_TABLES_READ: Mapping[Check, tuple[str, ...]] = {
    check_sequences: ("fq_message", "fq_dead_letter", "fq_channel", "fq_signal", "fq_channel_state"),
    check_leases: ("fq_lease", "fq_message"),
    check_waits: ("fq_lease",),
    check_times: ("fq_channel", "fq_channel_state", "fq_message"),
    check_history: ("fq_queue",),
    check_quarantine: ("fq_channel_state",),
}
"""Checks that read tables, which are granted to nobody."""
_READ_ALL = "run doctor as the owner of the tables"
_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_SETTINGS = (
    text("set transaction read only"),
    text("set local statement_timeout = '60s'"),
    # A role that may create functions in a schema of the search_path could have its own called by a superuser.
    text("set local search_path = pg_catalog, pg_temp"),
    # The driver reads times and durations in these formats alone; the role or the database may have set others.
    text("set local datestyle = 'ISO'"),
    text("set local intervalstyle = 'postgres'"),
)


def doctor(
    options: Options,
    *,
    max_age: Annotated[
        timedelta,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="The age of a ready message from which on there is a warning.",
            show_default="5m",
        ),
    ] = timedelta(minutes=5),
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OBJECT",
            help="An object that differs on purpose, like 'index message_tenant'. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        Role, typer.Option("--role", metavar="ROLE", help=f"The work of the connected role: {', '.join(Role)}.")
    ] = Role.CONSUMER,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
) -> Result:
    """Check the installation: schema, privileges, vacuum, snapshots, queues without workers.

    It changes nothing. The exit status is 1 when a problem was found.
    """
    with open_target(options) as target, target.engine.connect() as connected:
        connection = connected.execution_options(isolation_level="READ COMMITTED")
        with connection.begin():
            schema, version = find_installation(connection, target.schema, role.value)
        context = CheckContext(connection, schema, version, target.queue, max_age, tuple(allow or ()), role)
        checks, left_out = (_ANY_VERSION, []) if too_old(version, schema) else _possible_checks(context)
        findings = [finding for check in checks for finding in _findings(context, check)]
    if left_out:
        words = ", ".join(map(_subject, left_out))
        message = f"not checked, for which the role lacks privileges that its work does not need: {words}"
        findings.append(Finding("privileges", Level.OK, message, _READ_ALL, {"unchecked": words.split(", ")}))
    worst = max(finding.level for finding in findings)
    bad = worst is Level.PROBLEM or (strict and worst is Level.WARNING)
    return Result(
        {
            "database": target.database,
            "schema": schema,
            "version": version,
            "level": worst.word,
            "findings": [finding.document() for finding in findings],
        },
        tuple(_lines(finding) for finding in findings),
        ExitStatus.FOUND if bad else ExitStatus.OK,
    )


def _possible_checks(context: CheckContext) -> tuple[tuple[Check, ...], list[Check]]:
    """The checks that the role may make, and those that it may not."""
    with context.connection.begin():
        left_out = [check for check in _CHECKS if not _is_possible(context, check)]
    return tuple(check for check in _CHECKS if check not in left_out), left_out


def _is_possible(context: CheckContext, check: Check) -> bool:
    """Whether the role may read what a check reads. What is missing altogether is for the check to find."""
    functions, tables = _FUNCTIONS_READ.get(check, ()), _TABLES_READ.get(check, ())
    schema = context.schema
    return not (
        (functions and context.execute("missing_function_privileges", schema=schema, functions=list(functions)).all())
        or (tables and context.execute("missing_table_privileges", schema=schema, tables=list(tables)).all())
    )


def _subject(check: Check) -> str:
    return check.__name__.removeprefix("check_")


def _findings(context: CheckContext, check: Check) -> list[Finding]:
    """The findings of a check, in a transaction of its own; an error is a finding too."""
    connection = context.connection
    subject = _subject(check)
    try:
        with connection.begin():
            for statement in _SETTINGS:
                connection.execute(statement)
            return list(check(context))
    except Exception as error:
        failed = command_error(error)
        if failed.status is ExitStatus.AWAY:
            raise
        problem = one_line(error.orig if isinstance(error, DBAPIError) and error.orig else error)
        if failed.status is ExitStatus.FAILED:
            problem = f"{type(error).__name__}: {problem}"
        remedy = _READ_ALL if failed.kind == "privilege_missing" else None
        return [Finding(subject, Level.WARNING, f"could not be checked: {problem}", remedy)]


def _lines(finding: Finding) -> Text:
    lines = Text(f"{finding.level.word:8}", style=_STYLES[finding.level])
    lines.append(f" {finding.check:13} ", style="bold")
    lines.append(clean(finding.message), style="")
    for line in (finding.remedy or "").splitlines():
        lines.append(f"\n{'':23}{clean(line)}", style="cyan")
    return lines
