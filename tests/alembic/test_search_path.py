"""Migrations by somebody whose search_path has a schema in which others may create functions."""

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.sql import catalog
from sqlalchemy_fairqueue.sql.catalog import find_drift
from tests.alembic.conftest import LATEST, Project
from tests.alembic.migrations import run_script
from tests.fixtures.database import Database, MakeDatabase, install
from tests.fixtures.planted import plant

pytestmark = pytest.mark.installed

PATH = '"$user", public, pg_temp'


@pytest.mark.many(1)
@pytest.mark.parametrize("schema", [None, "apps"])
def test_planted_functions_are_not_called(project: Project, make_database: MakeDatabase, schema: str | None) -> None:
    """Online and as a script, from the installation to its end: nothing but PostgreSQL's own functions is called."""
    online, offline = (make_database(installed=False) for _ in range(2))
    for database in online, offline:
        plant(database)
        database.execute(f'alter database "{database.name}" set search_path = {PATH}')
        with pytest.raises(DBAPIError, match="a planted format"):
            database.value("select format('%I', 'a'::name)")
    project.point_at(online.url)
    steps = [
        "op.execute('select 1')" if schema is None else f"op.execute(sa.schema.CreateSchema({schema!r}))",
        f"op.create_fairqueue(version=1, schema={schema!r})",
        f"op.upgrade_fairqueue(1, {LATEST}, schema={schema!r})",
        f"op.repair_fairqueue({LATEST}, schema={schema!r})",
        f"op.downgrade_fairqueue({LATEST}, 1, schema={schema!r})",
        f"op.drop_fairqueue(version=1, schema={schema!r})",
        # Of the transaction's settings none is left changed.
        "op.execute(\"create table looked as select current_setting('search_path') as path\")",
    ]
    project.migration("all", "\n".join(steps))
    project.run("upgrade", "all")
    run_script(offline, project.run("upgrade", "all", "--sql"))
    for database in online, offline:
        assert database.value("select path from looked") == PATH


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "AUTOCOMMIT"])
def test_looking_calls_nothing_planted(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """find_drift calls none either, and leaves the search_path as it was, also where it fails."""
    engine = create_engine(empty_database.url, poolclass=NullPool)
    with engine.begin() as connection:
        install(connection, version=LATEST)
    plant(empty_database)
    with engine.connect().execution_options(isolation_level=isolation) as connection:
        connection.exec_driver_sql(f"set search_path = {PATH}")
        connection.commit()
        assert find_drift(connection) == []
        assert connection.exec_driver_sql("show search_path").scalar() == PATH
        monkeypatch.setattr(catalog, "query", lambda _: "select 1 / 0 as name")
        with pytest.raises(DBAPIError, match="division by zero"):
            find_drift(connection)
        connection.rollback()
        assert connection.exec_driver_sql("show search_path").scalar() == PATH
