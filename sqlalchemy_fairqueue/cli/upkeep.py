"""``doctor``, ``roles`` and ``history``: check and maintain an installation."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated

from rich.text import Text
from sqlalchemy import Connection, text

from sqlalchemy_fairqueue.cli.errors import ExitStatus
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, Spec, Yes
from sqlalchemy_fairqueue.cli.output import Result, confirm
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, cell, text_table
from sqlalchemy_fairqueue.cli.target import open_target
from sqlalchemy_fairqueue.database.calls import call
from sqlalchemy_fairqueue.database.engines import READ_COMMITTED, isolate
from sqlalchemy_fairqueue.doctor.examination import examine
from sqlalchemy_fairqueue.doctor.findings import Finding, Level, Role
from sqlalchemy_fairqueue.doctor.installation import Unusable, current_role, grant
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.grants import (
    PUBLIC,
    RoleGrant,
    RoleRights,
    compared_rights,
    may_read_grants,
    read_grants,
    read_privileges,
    role_functions,
)
from sqlalchemy_fairqueue.texts import clean

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def doctor(
    options: Options,
    *,
    max_age: Annotated[timedelta, Spec(shown="5m")] = timedelta(minutes=5),
    allow: Annotated[list[str] | None, Spec(metavar="OBJECT")] = None,
    role: Annotated[Role, Spec(metavar="ROLE")] = Role.CONSUMER,
    strict: bool = False,
    repair: bool = False,
    yes: Yes = False,
) -> Result:
    """Check the installation: schema, privileges, vacuum, transactions that hold vacuum back, queues without workers.

    It changes nothing without --repair. The exit status is 1 if a problem was found.

    With --repair it repairs what a restore, a copy or a server clock that went back has left: ids that would be issued
    twice, times in the future, repeated state rows. It asks first, and only the owner of the tables can repair. Stop
    the workers first. The exit status is 1 if something is left to repair.

    Options:
        max_age: Warn of ready messages that are older than this.
        allow: An object that differs on purpose, like 'index message_tenant'. Can be repeated.
        role: The work that the connected role is meant for: {choices}.
        strict: Exit with 1 for warnings too.
        repair: Repair what can be repaired.
    """
    with open_target(options) as target, target.engine.connect() as connected:
        connection = isolate(connected, READ_COMMITTED)
        look = partial(
            examine, connection, target.schema, target.queue, max_age=max_age, allowed=tuple(allow or ()), role=role
        )
        found = look()
        repaired = _repair(connection, found.findings, yes=yes) if repair else []
        if repaired:
            found = look()
    findings = [one for one in found.findings if one.repair] if repair else found.findings
    worst = max((one.level for one in findings), default=Level.OK)
    bad = worst is Level.PROBLEM or (strict and worst is Level.WARNING)
    document = {
        "database": target.database,
        "schema": found.schema,
        "version": found.version,
        "level": worst.word,
        "findings": [finding.document() for finding in findings],
    }
    lines: list[str | Text] = [_lines(finding) for finding in findings]
    if repair:
        document["repaired"] = [finding.document() for finding in repaired]
        lines[:0] = [f"repaired: {one.message}" for one in repaired] or ["nothing is to be repaired"]
    return Result(document, tuple(lines), ExitStatus.FOUND if bad else ExitStatus.OK)


def _repair(connection: Connection, findings: Sequence[Finding], *, yes: bool) -> list[Finding]:
    found = [one for one in findings if one.repair]
    if found:
        confirm(f"{'; '.join(one.message for one in found)}. Is no worker running, and shall it be repaired?", yes=yes)
        with connection.begin():
            # Several findings may be repaired by the same statement.
            for statement in dict.fromkeys(statement for one in found for statement in one.repair):
                connection.execute(text(statement.replace(":", r"\:")))
    return found


def _lines(finding: Finding) -> Text:
    lines = Text(f"{finding.level.word:8}", style=_STYLES[finding.level])
    lines.append(f" {finding.check:13} ", style="bold")
    lines.append(clean(finding.message), style="")
    for line in (finding.remedy or "").splitlines():
        lines.append(f"\n{'':23}{clean(line)}", style="cyan")
    return lines


_ROLES = Table(
    Column("role"),
    Column("", "exists", get=lambda one: one.role_exists),
    Column("", "lacking", get=lambda one: list(one.lacking)),
    Column("", "beyond", get=lambda one: list(one.beyond)),
    Column("", "others", get=lambda one: list(one.others)),
)
_RIGHTS = (
    Column("role"),
    Column("kind"),
    Column("queues", blank=BLANK),
    Column("channels", blank=BLANK),
    Column("rights"),
)


def roles(options: Options) -> Result:
    """Show who may do what: the grants of roles, and rights that roles have beyond their grants."""
    with open_installation(options) as installation, installation.engine.connect() as connection:
        schema, version = installation.schema, min(installation.version, latest_version())
        if not may_read_grants(connection, schema):
            role = current_role(connection)
            message = f"role {role!r} may not read the grants of schema {schema!r}"
            raise Unusable(message, "privilege_missing", grant(role, "monitor", schema))
        found = compared_rights(version, read_grants(connection, schema), read_privileges(connection, schema))
    documents = [
        _ROLES.document(one) | {"grants": [_grant_document(each, version) for each in one.grants]} for one in found
    ]
    rows = [row for one in found for row in _rows(one)]
    nothing = "no role has a grant: nobody but the owner may use it; op.grant_fairqueue() lets"
    return Result({"roles": documents}, (text_table(_RIGHTS, rows) if rows else nothing,))


def _grant_document(grant: RoleGrant, version: int) -> dict[str, object]:
    return {
        "kind": grant.kind,
        "queues": None if grant.queues is None else list(grant.queues),
        "channels": None if grant.channels is None else list(grant.channels),
        "functions": list(role_functions(version, grant.kind)),
    }


def _rows(rights: RoleRights) -> list[list[Text]]:
    name = "PUBLIC" if rights.role == PUBLIC else rights.role
    if not rights.role_exists:
        state = Text("the role was dropped", style="yellow")
    elif rights.lacking:
        state = Text(f"lacks execute on {', '.join(rights.lacking)}", style="yellow")
    else:
        state = Text("as granted")
    rows = [
        [cell(name, "bold"), cell(one.kind), _names(one.queues), _names(one.channels), state] for one in rights.grants
    ]
    extra = [f"execute on {', '.join(rights.beyond)}"] if rights.beyond else []
    return rows + [
        [cell(name, "bold"), cell(None), cell(None), cell(None), Text(f"by hand: {clean(one)}", style="yellow")]
        for one in (*extra, *rights.others)
    ]


def _names(names: Collection[str] | None) -> Text:
    return Text("all" if names is None else clean(", ".join(names)))


_UNFINISHED = {"emptied", "busy"}
"""Actions of fq_keep_history that another call must complete, since a table was in use."""
_MAX_ROUNDS = 5
_PARTITIONS = Table(Column("partition"), Column("action"))


def prune_history(options: Options, *, ahead: Annotated[int, Spec(metavar="DAYS", min=1, max=366)] = 7) -> Result:
    """Drop the days of the history that no queue keeps any longer, and make the partitions of the next days.

    Workers do this by themselves if their role may execute fq_keep_history. While another process does it, this
    command does nothing.

    Options:
        ahead: Days to have ready.
    """
    changes = []
    with open_installation(options) as installation:
        for _ in range(_MAX_ROUNDS):
            with installation.engine.begin() as connection:
                prune = call(installation.schema, "fq_keep_history", "keep the partitions of the history", ahead=ahead)
                pruned = list(prune.rows(connection))
            changes += pruned
            if not any(row.action in _UNFINISHED for row in pruned):
                break
    document = {"partitions": _PARTITIONS.documents(changes)}
    return Result(document, _PARTITIONS.listing(changes, "no partition of the history was to be made or dropped"))
