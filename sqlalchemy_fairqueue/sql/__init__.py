"""The SQL of every version of the schema, as text: what to send, in which order, to install, change or drop it.

A function is one file, ``vN/<function>.sql``; ``vN/reads/`` has functions that only read, for people and dashboards,
and ``vN/loads/`` those that only bulk loads call. A table with its indexes is one file, ``vN/tables/<table>.sql``.
Version N of an object is the newest file in v1..vN, and a released file never changes: so every version can be put
together for ever, and a migration never reads the models, which move. ``vN/upgrade.sql`` and ``vN/downgrade.sql``
change tables of an earlier version. ``blocks/`` has parts of guards and grants. The statements are pure functions of
versions and a schema, and are sent by others; only :func:`find_drift` asks a database, by ``queries/``.
"""

from sqlalchemy_fairqueue.sql.catalog import Difference, assert_no_drift, find_drift
from sqlalchemy_fairqueue.sql.statements import (
    downgrade_statements,
    drop_statements,
    install_statements,
    upgrade_statements,
)

__all__ = [
    "Difference",
    "assert_no_drift",
    "downgrade_statements",
    "drop_statements",
    "find_drift",
    "install_statements",
    "upgrade_statements",
]
