"""The catalogs of all versions, ``vN/catalog.json``, written from real installations that are rolled back.

``python -m tests.alembic.freezing`` writes those of the package and those of the ladder, on a server of its own.
"""

import json
from pathlib import Path

from sqlalchemy import URL, Connection, create_engine

from sqlalchemy_fairqueue.embedded import embedded_server
from sqlalchemy_fairqueue.sql.catalog import Catalog, _frozen, read_catalog
from sqlalchemy_fairqueue.sql.files import FOLDERS, folder, versions
from sqlalchemy_fairqueue.sql.statements import install_statements
from tests.alembic.conftest import climbed

_SCHEMA = "fairqueue_freezing"


def installed_catalog(connection: Connection, version: int) -> Catalog:
    """The catalog of a version, installed into a schema that is rolled back."""
    with connection.begin() as transaction:
        connection.exec_driver_sql(f"create schema {_SCHEMA}")
        for statement in install_statements(version, _SCHEMA):
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
        found = read_catalog(connection, _SCHEMA)
        transaction.rollback()
    return found


def frozen(catalog: Catalog, version: int) -> str:
    """The text of the file: a line an object that is new, other or gone since the version before."""
    before = {} if version == versions()[0] else _frozen(version - 1)
    changes: dict[str, dict[str, str] | None] = {
        name: facts for name, facts in catalog.items() if before.get(name) != facts
    }
    changes |= {name: None for name in before if name not in catalog}
    lines = (f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in changes.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def freeze(url: str | URL) -> None:
    """Write the file of every version."""
    FOLDERS[:] = climbed()
    engine = create_engine(url)
    with engine.connect() as connection:
        for version in versions():
            path = Path(str(folder(version))) / "catalog.json"
            path.write_text(frozen(installed_catalog(connection, version), version), encoding="utf-8")
            # The next version holds what differs from this one as it is now.
            _frozen.cache_clear()
    engine.dispose()


if __name__ == "__main__":
    with embedded_server() as server:
        freeze(server.url())
