"""``roles``: who may do what, by the grants and by the privileges as they are."""

# Annotations are read when the program starts, so that they must not be postponed.
from collections.abc import Collection

from rich.text import Text

from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, cell, text_table
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

_COLUMNS = (
    Column("role"),
    Column("kind"),
    Column("queues", blank=BLANK),
    Column("channels", blank=BLANK),
    Column("rights"),
)


def roles(options: Options) -> Result:
    """Show who may do what: the grants of roles, and rights that no grant stands for."""
    with open_installation(options) as installation, installation.engine.connect() as connection:
        schema, version = installation.schema, min(installation.version, latest_version())
        if not may_read_grants(connection, schema):
            role = current_role(connection)
            message = f"role {role!r} may not read the grants of schema {schema!r}"
            raise Unusable(message, "privilege_missing", grant(role, "monitor", schema))
        found = compared_rights(version, read_grants(connection, schema), read_privileges(connection, schema))
    rows = [row for one in found for row in _rows(one)]
    table = text_table(_COLUMNS, rows) if rows else Text("nobody but the owner may use it; op.grant_fairqueue() lets")
    return Result({"roles": [_document(one, version) for one in found]}, (table,))


def _document(rights: RoleRights, version: int) -> dict[str, object]:
    return {
        "role": rights.role,
        "exists": rights.role_exists,
        "grants": [_grant_document(one, version) for one in rights.grants],
        "lacking": list(rights.lacking),
        "beyond": list(rights.beyond),
        "others": list(rights.others),
    }


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
