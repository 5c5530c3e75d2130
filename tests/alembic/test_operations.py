"""op.create_fairqueue and op.drop_fairqueue, in a migration run by Alembic's command line."""

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.sql.schema import quoted
from tests.alembic.catalog import catalog
from tests.alembic.conftest import LATEST, Project
from tests.fixtures.database import Database, MakeDatabase

pytestmark = pytest.mark.installed

ENQUEUE_ONE = """
    select fq_enqueue('q', array['c'], array['k'], array[''::bytea], array[null]::jsonb[], array[null]::bigint[],
      array[null]::bigint[], array[null]::integer[], array[null]::text[], array[null]::integer[])
"""


def migrate(project: Project, schema: str | None, version: int = 1) -> None:
    """Write the migration that installs into the schema and takes it away again, between operations of the user's."""
    made = "" if schema is None else f"op.execute(sa.schema.CreateSchema({schema!r}, if_not_exists=True))"
    project.migration(
        "one",
        f"""\
        op.create_table("upload", sa.Column("id", sa.Integer, primary_key=True))
        {made}
        op.create_fairqueue(version={version}, schema={schema!r})
        op.execute("comment on table upload is 'it is 100% ours'")
        """,
        f"""\
        op.drop_fairqueue(version={version}, schema={schema!r})
        op.drop_table("upload")
        """,
    )


def run_script(database: Database, script: str) -> None:
    """Run a script as ``psql -v ON_ERROR_STOP=1`` does: text to the server, nothing replaced."""
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        connection.execute(script.encode())


@pytest.mark.many(1)
def test_script_and_connection_leave_the_same_catalog(
    project: Project, make_database: MakeDatabase, schema: str | None
) -> None:
    """``alembic upgrade`` and the script of ``alembic upgrade --sql`` make the same objects, which work; both can be
    undone, and done again.
    """
    online, offline = make_database(installed=False), make_database(installed=False)
    migrate(project, schema, LATEST)

    project.point_at(online.url)
    project.run("upgrade", "head")
    run_script(offline, project.run("upgrade", "head", "--sql"))
    before = catalog(online, schema)
    assert "function fq_dequeue" in before
    assert catalog(offline, schema) == before
    deliver(offline, schema)

    project.run("downgrade", "base")
    run_script(offline, project.run("downgrade", "one:base", "--sql"))
    assert catalog(online, schema) == catalog(offline, schema) == {}
    project.run("upgrade", "head")
    assert catalog(online, schema) == before


def deliver(database: Database, schema: str | None) -> None:
    """Enqueue a message in the installed schema; it is delivered and completed there."""
    with psycopg.connect(database.conninfo) as connection:
        connection.execute(f"set search_path to {quoted(schema or 'public')}".encode())
        connection.execute(ENQUEUE_ONE)
        connection.commit()
        *deliveries, call = connection.execute(
            "select message_id, row_id, channel, deliveries, lease_id from fq_dequeue('q', 1, 60000000, 'me')"
        ).fetchall()
        message_id, row_id, channel, count, _ = deliveries[0]
        lost = connection.execute(
            "select fq_complete('q', array[%s::bigint], array[%s::tid], array[%s::bigint], array[%s::int])",
            (message_id, row_id, call[-1], count),
        ).fetchall()
    assert (channel, lost) == ("c", [])


def test_no_schema_is_the_connections_default(project: Project, make_database: MakeDatabase) -> None:
    """Without a name the schema is the first of the connection's search_path, as if it had been named."""
    unnamed, named = make_database(installed=False), make_database(installed=False)
    unnamed.execute('create schema "Apps"')
    migrate(project, None)
    project.point_at(unnamed.url, search_path='"Apps"')
    project.run("upgrade", "head")

    migrate(project, "Apps")
    project.point_at(named.url)
    project.run("upgrade", "head")

    ours = {name: facts for name, facts in catalog(unnamed, "Apps").items() if "upload" not in name}
    assert ours == catalog(named, "Apps")
    assert catalog(unnamed) == {}


def test_install_is_part_of_the_migrations_transaction(project: Project, empty_database: Database) -> None:
    """When an operation after it fails, nothing of the migration stays: neither ours nor the user's."""
    project.migration(
        "one",
        """\
        op.create_table("upload", sa.Column("id", sa.Integer, primary_key=True))
        op.create_fairqueue()
        op.execute("select 1 / 0")
        """,
    )
    project.point_at(empty_database.url)
    with pytest.raises(DBAPIError, match="division by zero"):
        project.run("upgrade", "head")
    assert catalog(empty_database) == {}


def test_drop_is_part_of_the_migrations_transaction(project: Project, empty_database: Database) -> None:
    """When an operation after the drop fails, fairqueue and its messages are all there."""
    project.migration("one", "op.create_fairqueue()", 'op.drop_fairqueue()\nop.execute("select 1 / 0")')
    project.point_at(empty_database.url)
    project.run("upgrade", "head")
    before = catalog(empty_database)
    with pytest.raises(DBAPIError, match="division by zero"):
        project.run("downgrade", "base")
    assert catalog(empty_database) == before


def test_drop_leaves_what_is_the_users(project: Project, empty_database: Database) -> None:
    """A drop takes messages with it, and neither a table nor a function of the user's, whatever its prefix. A view over
    our tables is never dropped along: the downgrade fails, names it, and changes nothing.
    """
    migrate(project, None)
    project.point_at(empty_database.url)
    project.run("upgrade", "head")
    empty_database.execute("create table fq_report (id int)")
    empty_database.execute("create function fq_mine() returns int language sql as 'select 1'")
    empty_database.execute("insert into fq_lease values (1, 'q', 'me', 0)")
    empty_database.execute("create view backlog as select count(*) from fq_message")
    before = catalog(empty_database)
    with pytest.raises(DBAPIError, match="view backlog depends"):
        project.run("downgrade", "base")
    assert catalog(empty_database) == before
    assert empty_database.value("select count from backlog") == 0
    empty_database.execute("drop view backlog")
    project.run("downgrade", "base")
    assert set(catalog(empty_database, kinds=("relation", "function"))) == {"relation fq_report", "function fq_mine"}


def test_import_in_env_is_enough(project: Project, empty_database: Database) -> None:
    """``import alembic_ext`` in env.py serves migrations that do not import it."""
    migrate(project, None)
    migration = project.root / "migrations" / "versions" / "one_.py"
    migration.write_text(migration.read_text().replace("import alembic_ext\n", ""))
    project.edit_env("from alembic import context\n", "from alembic import context\nimport alembic_ext\n")
    project.point_at(empty_database.url)
    project.run("upgrade", "head")
    assert empty_database.value("select fq_version()") == 1


def test_invoked_as_values(project: Project, make_database: MakeDatabase) -> None:
    """``op.invoke(CreateFairqueueOp(2))``, known to type checkers, is ``op.create_fairqueue(version=2)``."""
    online, called = (make_database(installed=False) for _ in range(2))
    migrate(project, None, 2)
    project.point_at(called.url)
    project.run("upgrade", "head")
    imported = "from alembic_ext import CreateFairqueueOp, DowngradeFairqueueOp, DropFairqueueOp, UpgradeFairqueueOp"
    project.migration(
        "one",
        f"""\
        {imported}
        op.create_table("upload", sa.Column("id", sa.Integer, primary_key=True))
        op.invoke(CreateFairqueueOp(1))
        op.invoke(UpgradeFairqueueOp(1, 2))
        op.execute("comment on table upload is 'it is 100% ours'")
        """,
        f"""\
        {imported}
        op.invoke(DowngradeFairqueueOp(2, 1))
        op.invoke(DropFairqueueOp(1))
        op.drop_table("upload")
        """,
    )
    project.point_at(online.url)
    project.run("upgrade", "head")
    assert catalog(online) == catalog(called)
    project.run("downgrade", "base")
    assert catalog(online) == {}
