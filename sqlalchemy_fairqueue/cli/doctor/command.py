"""``doctor``: every check, one after the other."""

# Annotations are read when the program starts, so that they must not be postponed.
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer
from rich.text import Text
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.doctor.findings import Examination, Finding, Level, Role
from sqlalchemy_fairqueue.cli.doctor.gates import check_gates
from sqlalchemy_fairqueue.cli.doctor.history import check_history
from sqlalchemy_fairqueue.cli.doctor.privileges import check_ownership, check_privileges
from sqlalchemy_fairqueue.cli.doctor.row_security import check_row_security
from sqlalchemy_fairqueue.cli.doctor.schema import check_drift, check_version
from sqlalchemy_fairqueue.cli.doctor.sequences import check_sequences
from sqlalchemy_fairqueue.cli.doctor.server import check_clock, check_server
from sqlalchemy_fairqueue.cli.doctor.snapshots import check_snapshots
from sqlalchemy_fairqueue.cli.doctor.times import check_times
from sqlalchemy_fairqueue.cli.doctor.vacuum import check_vacuum
from sqlalchemy_fairqueue.cli.doctor.work import check_leases, check_queues
from sqlalchemy_fairqueue.cli.failures import failure_of, said
from sqlalchemy_fairqueue.cli.installations import find_installation
from sqlalchemy_fairqueue.cli.options import Options, typed
from sqlalchemy_fairqueue.cli.places import place_of
from sqlalchemy_fairqueue.cli.statuses import Status
from sqlalchemy_fairqueue.cli.units import duration
from sqlalchemy_fairqueue.errors import clean
from sqlalchemy_fairqueue.installation import too_old

Check = Callable[[], Iterator[Finding]]

_CHECKS: tuple[Callable[[Examination], Iterator[Finding]], ...] = (
    check_version, check_drift, check_privileges, check_ownership, check_row_security, check_sequences, check_vacuum,
    check_snapshots, check_queues, check_gates, check_leases, check_times, check_history,
)  # fmt: skip
_TOO_FAR = (check_sequences, check_queues)
"""They read tables that a producer does not need."""
_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_BEFORE = (
    text("set transaction read only"),
    text("set local statement_timeout = '60s'"),
    # Whoever may create functions in a schema of the search_path could have theirs called by a superuser who looks.
    text("set local search_path = pg_catalog, pg_temp"),
    # The driver reads times and durations in these alone, whatever the role or the database prefers.
    text("set local datestyle = 'ISO'"),
    text("set local intervalstyle = 'postgres'"),
)


def doctor(
    options: Options,
    *,
    max_age: Annotated[
        timedelta,
        typer.Option(
            parser=typed(duration),
            metavar="DURATION",
            help="How long messages may be ready before it is worth a warning.",
            show_default="5m",
        ),
    ] = timedelta(minutes=5),
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OBJECT",
            help="What you added or changed on purpose, like 'index message_tenant'. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        Role, typer.Option("--role", metavar="ROLE", help=f"What the connected role is for: {', '.join(Role)}.")
    ] = Role.CONSUMER,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
) -> Answer:
    """Look for what may be wrong: schema, privileges, vacuum, snapshots, queues that nobody serves.

    Nothing is changed. The exit status is 1 when a problem was found.
    """
    with place_of(options) as place, place.engine.connect() as connected:
        connection = connected.execution_options(isolation_level="READ COMMITTED")
        with connection.begin():
            schema, version = find_installation(connection, place.schema)
        examined = Examination(connection, schema, version, place.queue, max_age, tuple(allow or ()), role)
        checks: list[Check] = [partial(check_server, connection), partial(check_clock, connection)]
        made = [check for check in _CHECKS if role is not Role.PRODUCER or check not in _TOO_FAR]
        if too_old(version, schema):
            made = [check_version]
        checks += [partial(check, examined) for check in made]
        findings = [finding for check in checks for finding in _findings(connection, check)]
    worst = max(finding.level for finding in findings)
    bad = worst is Level.PROBLEM or (strict and worst is Level.WARNING)
    return Answer(
        {
            "database": place.shown,
            "schema": schema,
            "version": version,
            "level": worst.word,
            "findings": [finding.document() for finding in findings],
        },
        tuple(_lines(finding) for finding in findings),
        Status.FOUND if bad else Status.OK,
    )


def _findings(connection: Connection, check: Check) -> list[Finding]:
    """What a check finds, in a transaction of its own; that it cannot look is a finding too."""
    function = check.func if isinstance(check, partial) else check
    subject = function.__name__.removeprefix("check_")
    try:
        with connection.begin():
            for statement in _BEFORE:
                connection.execute(statement)
            return list(check())
    except Exception as error:
        failure = failure_of(error)
        if failure.status is Status.AWAY:
            raise
        words = said(error.orig if isinstance(error, DBAPIError) and error.orig else error)
        if failure.status is Status.FAILED:
            words = f"{type(error).__name__}: {words}"
        remedy = "see the findings about privileges" if failure.kind == "privilege_missing" else None
        return [Finding(subject, Level.WARNING, f"could not be checked: {words}", remedy)]


def _lines(finding: Finding) -> Text:
    made = Text(f"{finding.level.word:8}", style=_STYLES[finding.level])
    made.append(f" {finding.check:13} ", style="bold")
    made.append(clean(finding.message), style="")
    for line in (finding.remedy or "").splitlines():
        made.append(f"\n{'':23}{clean(line)}", style="cyan")
    return made
