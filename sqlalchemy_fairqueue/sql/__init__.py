"""The SQL of every version of the schema, as text: what to send, in which order, to install, change or drop it.

A function is one file, ``vN/<function>.sql``; ``vN/reads/`` has functions that only read, for people and dashboards,
and ``vN/loads/`` those that only bulk loads call. A table with its indexes is one file, ``vN/tables/<table>.sql``.
Version N of an object is the newest file in v1..vN. A released file never changes, so each version can always be put
together, and no migration reads the models, which change. ``vN/upgrade.sql`` and ``vN/downgrade.sql`` change tables of
an earlier version. ``blocks/`` has parts of DO blocks. The statements depend only on versions and a schema, and other
packages send them; only :func:`find_drift` and what it calls query a database, by ``queries/``.
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
