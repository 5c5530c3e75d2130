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
