"""``doctor``: the checks of an installation, one after the other."""

# Annotations are read when the program starts, so that they must not be postponed.
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.errors import ExitStatus
from sqlalchemy_fairqueue.cli.options import Options, option_parser
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.target import open_target
from sqlalchemy_fairqueue.database.engines import READ_COMMITTED, isolate
from sqlalchemy_fairqueue.doctor.examination import examine
from sqlalchemy_fairqueue.doctor.findings import Finding, Level, Role
from sqlalchemy_fairqueue.formats import parse_duration
from sqlalchemy_fairqueue.texts import clean

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


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
        connection = isolate(connected, READ_COMMITTED)
        found = examine(connection, target.schema, target.queue, max_age=max_age, allowed=tuple(allow or ()), role=role)
    worst = found.worst
    bad = worst is Level.PROBLEM or (strict and worst is Level.WARNING)
    return Result(
        {
            "database": target.database,
            "schema": found.schema,
            "version": found.version,
            "level": worst.word,
            "findings": [finding.document() for finding in found.findings],
        },
        tuple(_lines(finding) for finding in found.findings),
        ExitStatus.FOUND if bad else ExitStatus.OK,
    )


def _lines(finding: Finding) -> Text:
    lines = Text(f"{finding.level.word:8}", style=_STYLES[finding.level])
    lines.append(f" {finding.check:13} ", style="bold")
    lines.append(clean(finding.message), style="")
    for line in (finding.remedy or "").splitlines():
        lines.append(f"\n{'':23}{clean(line)}", style="cyan")
    return lines
