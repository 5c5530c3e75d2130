"""What is installed: its version, and how it differs from what that version should look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.installations import unfit
from sqlalchemy_fairqueue.sql import schema_argument, versions
from sqlalchemy_fairqueue.sql.drift import find_drift

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

_FOUND_OUT = "find out who changed it outside the migrations; --allow '{}' where that was on purpose"


def check_version(examined: Examination) -> Iterator[Finding]:
    """Whether this library can use the installed version."""
    values = {"schema": examined.schema, "version": examined.version}
    failure = unfit(examined.schema, examined.version, examined.schema)
    if failure is None:
        message = f"fairqueue version {examined.version} in schema {examined.schema!r}"
        if examined.version not in versions():
            message += ", which this library does not know, so that it is not compared with its migrations"
        yield Finding("version", Level.OK, message, None, values)
    else:
        yield Finding("version", Level.PROBLEM, str(failure), failure.remedy, values)


def check_drift(examined: Examination) -> Iterator[Finding]:
    """Every object that is not as the migrations left it, by name."""
    if examined.version not in versions():
        return
    found = find_drift(examined.connection, examined.schema)
    differences = [one for one in found if one.named not in examined.allowed]
    repair = f"op.repair_fairqueue({examined.version}{schema_argument(examined.schema)}) in a migration brings it back"
    for difference in differences:
        remedy = repair if difference.kind == "function" else _FOUND_OUT.format(difference.named)
        values = {"kind": difference.kind, "object": difference.name, "state": difference.state}
        yield Finding("drift", Level.PROBLEM, str(difference), remedy, values)
    if not differences:
        said = f", but for {len(found)} that may differ" if found else ""
        yield Finding("drift", Level.OK, f"every table, index and function is as the migrations left it{said}")
    for unseen in sorted(set(examined.allowed) - {one.named for one in found}):
        yield Finding("drift", Level.WARNING, f"{unseen!r} is allowed and does not differ", "leave it out of --allow")
