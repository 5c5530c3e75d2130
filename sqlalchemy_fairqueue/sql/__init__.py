"""The SQL of every version of the schema, as text: what to send, in which order, to have it or to be rid of it.

A function is one file, ``vN/<function>.sql``. Functions that only read, for people and dashboards, are in
``vN/reads/``; functions that only bulk loads call are in ``vN/loads/``. A function that roles may execute pins the
search_path and the settings of the planner; one that only such functions call runs under their settings. A table with
its indexes is one file, ``vN/tables/<table>.sql``. Version N of an object is the newest file in v1..vN, and a released
file never changes: so every version can be put together for ever, and a migration never reads the models, which move.
What changes tables that an earlier version made is in ``vN/upgrade.sql`` and, back, ``vN/downgrade.sql``. What guards
and grants do is in ``blocks/``, parts of blocks that are put together here. The statements are pure functions of
versions and a schema, and are sent by others; :func:`find_drift` alone asks a database whether it is still what they
made, by the statements of ``queries/``.
"""

from __future__ import annotations

from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.sql.drift import (
    Difference,
    assert_no_drift,
    find_drift,
    installed_version,
    recognised_version,
)
from sqlalchemy_fairqueue.sql.files import (
    NEEDED_VERSION,
    functions,
    latest_version,
    relations,
    signature,
    tables,
    versions,
)
from sqlalchemy_fairqueue.sql.grants import (
    BOUND_BY_CHANNEL,
    BOUND_BY_QUEUE,
    KINDS,
    RoleGrant,
    function_roles,
    grant_statements,
    revoke_statements,
    role_functions,
)
from sqlalchemy_fairqueue.sql.guards import (
    SCHEMA_MISMATCH,
    change_guard,
    install_guard,
    installed_guard,
    repair_guard,
    same_transaction_guard,
)
from sqlalchemy_fairqueue.sql.repair import repair_statements
from sqlalchemy_fairqueue.sql.rights import (
    PUBLIC,
    HeldGrant,
    Privilege,
    RoleRights,
    compared_rights,
    may_read_grants,
    read_grants,
    read_privileges,
)
from sqlalchemy_fairqueue.sql.schema import (
    IS_UNRELEASED,
    UNRELEASED,
    VERSION_COLUMN,
    in_schema,
    named_schema,
    quoted,
    quoted_literal,
    schema_argument,
)
from sqlalchemy_fairqueue.sql.statements import (
    downgrade_statements,
    drop_statements,
    install_statements,
    upgrade_statements,
)

__all__ = [
    "BOUND_BY_CHANNEL",
    "BOUND_BY_QUEUE",
    "IS_UNRELEASED",
    "KINDS",
    "NEEDED_VERSION",
    "PUBLIC",
    "SCHEMA_MISMATCH",
    "UNRELEASED",
    "VERSION_COLUMN",
    "Difference",
    "HeldGrant",
    "Privilege",
    "RoleGrant",
    "RoleRights",
    "assert_no_drift",
    "change_guard",
    "compared_rights",
    "downgrade_statements",
    "drop_statements",
    "expected_catalog",
    "find_drift",
    "function_roles",
    "functions",
    "grant_statements",
    "in_schema",
    "install_guard",
    "install_statements",
    "installed_guard",
    "installed_version",
    "latest_version",
    "may_read_grants",
    "named_schema",
    "quoted",
    "quoted_literal",
    "read_grants",
    "read_privileges",
    "recognised_version",
    "relations",
    "repair_guard",
    "repair_statements",
    "revoke_statements",
    "role_functions",
    "same_transaction_guard",
    "schema_argument",
    "signature",
    "tables",
    "upgrade_statements",
    "versions",
]
