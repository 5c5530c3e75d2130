"""The SQL of every version of the schema, as text: what to send, in which order, to install, change or drop it.

A function is one file, ``vN/<function>.sql``; ``vN/reads/`` has functions that only read, for people and dashboards,
and ``vN/loads/`` those that only bulk loads call. A table with its indexes is one file, ``vN/tables/<table>.sql``.
Version N of a function is its newest file in v1..vN. The file of a table creates it; ``vN/upgrade.sql`` changes the
tables of the version before, and ``vN/downgrade.sql`` undoes that. A released file never changes. So each version can
always be put together, and no migration needs the models, which do change. ``blocks/`` has parts of DO blocks.

This package writes the statements without asking a database, and other packages send them. Only :func:`find_drift` and
the functions that it calls query a database; ``queries/`` has most of their queries.
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
