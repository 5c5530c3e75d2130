"""Version of the installed schema, and its differences from the objects of that version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.installation import version_error
from sqlalchemy_fairqueue.sql.drift import find_drift
from sqlalchemy_fairqueue.sql.files import versions
from sqlalchemy_fairqueue.sql.schema import schema_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_DRIFT_REMEDY = "find out who changed it outside the migrations; --allow '{}' where that was on purpose"


def check_version(context: CheckContext) -> Iterator[Finding]:
    """Whether this library can use the installed version."""
    values = {"schema": context.schema, "version": context.version}
    failure = version_error(context.schema, context.version, context.schema)
    if failure is None:
        message = f"fairqueue version {context.version} in schema {context.schema!r}"
        if context.version not in versions():
            message += ", which this library does not know, so that it is not compared with its migrations"
        yield Finding("version", Level.OK, message, None, values)
    else:
        yield Finding("version", Level.PROBLEM, str(failure), failure.remedy, values)


def check_drift(context: CheckContext) -> Iterator[Finding]:
    """Objects that are not as the migrations left them."""
    if context.version not in versions():
        return
    # Grants are a check of their own.
    found = [one for one in find_drift(context.connection, context.schema) if one.kind != "grant"]
    differences = [one for one in found if one.named not in context.allowed]
    repair = f"op.repair_fairqueue({context.version}{schema_argument(context.schema)}) in a migration brings it back"
    for difference in differences:
        remedy = repair if difference.kind == "function" else _DRIFT_REMEDY.format(difference.named)
        values = {"kind": difference.kind, "object": difference.name, "state": difference.state}
        yield Finding("drift", Level.PROBLEM, str(difference), remedy, values)
    if not differences:
        note = f", but for {len(found)} that may differ" if found else ""
        yield Finding("drift", Level.OK, f"every table, index and function is as the migrations left it{note}")
    unmet = {one for one in context.allowed if not one.startswith("grant ")} - {one.named for one in found}
    for unseen in sorted(unmet):
        yield Finding("drift", Level.WARNING, f"{unseen!r} is allowed and does not differ", "leave it out of --allow")
