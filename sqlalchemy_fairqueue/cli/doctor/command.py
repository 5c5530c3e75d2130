"""``doctor``: the checks of an installation, one after the other."""

# Annotations are read when the program starts, so that they must not be postponed.
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext, Finding, Level, Role
from sqlalchemy_fairqueue.cli.doctor.gates import check_gates
from sqlalchemy_fairqueue.cli.doctor.history import check_history
from sqlalchemy_fairqueue.cli.doctor.privileges import check_ownership, check_privileges
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
    check_server, check_clock, check_version, check_drift, check_privileges, check_ownership, check_row_security,
    check_sequences, check_vacuum, check_snapshots, check_queues, check_gates, check_leases, check_waits, check_times,
    check_history,
)  # fmt: skip
_ANY_VERSION = (check_server, check_clock, check_version)
_NOT_FOR_PRODUCERS = (
    check_sequences, check_queues, check_gates, check_leases, check_waits, check_times, check_history,
)  # fmt: skip
"""They read tables, or call functions, that a producer needs no privilege on."""
_READ_ALL = "run doctor as a role that may do what --role monitor asks for, or as the owner of the tables"
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
            schema, version = find_installation(connection, target.schema)
        context = CheckContext(connection, schema, version, target.queue, max_age, tuple(allow or ()), role)
        checks = [check for check in _CHECKS if role is not Role.PRODUCER or check not in _NOT_FOR_PRODUCERS]
        if too_old(version, schema):
            checks = [*_ANY_VERSION]
        findings = [finding for check in checks for finding in _findings(context, check)]
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


def _findings(context: CheckContext, check: Check) -> list[Finding]:
    """The findings of a check, in a transaction of its own; an error is a finding too."""
    connection = context.connection
    subject = check.__name__.removeprefix("check_")
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
