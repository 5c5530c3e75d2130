"""op.create_fairqueue and op.drop_fairqueue, in a migration run by Alembic's command line."""

import pytest
from sqlalchemy.exc import DBAPIError

from tests.alembic.catalog import catalog
from tests.alembic.conftest import Project
from tests.alembic.migrations import write
from tests.fixtures.database import Database, MakeDatabase

pytestmark = pytest.mark.installed


def test_no_schema_is_the_connections_default(project: Project, make_database: MakeDatabase) -> None:
    """Without a name the schema is the first of the connection's search_path, as if it had been named."""
    unnamed, named = make_database(installed=False), make_database(installed=False)
    unnamed.execute('create schema "Apps"')
    for database, schema, search_path in ((unnamed, None, '"Apps"'), (named, "Apps", None)):
        write(project, 1, schema)
        project.point_at(database.url, search_path=search_path)
        project.run("upgrade", "head")
    assert catalog(unnamed, "Apps") == catalog(named, "Apps")
    assert catalog(unnamed) == {}


def test_operations_are_part_of_the_migrations_transaction(project: Project, empty_database: Database) -> None:
    """When an operation after ours fails nothing of the migration stays, and fairqueue is there as it was."""
    failing = "op.execute('select 1 / n from divisor')"
    made = "op.create_table('upload', sa.Column('id', sa.Integer))\nop.create_fairqueue(1)"
    project.migration("one", f"{made}\n{failing}", f"op.drop_fairqueue(1)\n{failing}")
    steps = (f"op.{step}\n{failing}" for step in ("upgrade_fairqueue(1, 2)", "downgrade_fairqueue(2, 1)"))
    project.migration("two", *steps, down="one")
    project.point_at(empty_database.url)
    empty_database.execute("create table divisor as select 0 as n")
    for way, revision in (("upgrade", "one"), ("upgrade", "two"), ("downgrade", "one"), ("downgrade", "base")):
        before = catalog(empty_database)
        with pytest.raises(DBAPIError, match="division by zero"):
            project.run(way, revision)
        assert catalog(empty_database) == before
        empty_database.execute("update divisor set n = 1")
        project.run(way, revision)
        assert catalog(empty_database) != before
        empty_database.execute("update divisor set n = 0")


def test_drop_leaves_what_is_the_users(project: Project, empty_database: Database) -> None:
    """A drop takes messages with it, and neither a table nor a function of the user's, whatever its prefix. A view over
    our tables is never dropped along: the downgrade fails, names it, and changes nothing.
    """
    write(project, 1)
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


def test_invoked_as_values(project: Project, empty_database: Database, make_database: MakeDatabase) -> None:
    """``op.invoke(CreateFairqueueOp(2))``, known to type checkers, is ``op.create_fairqueue(version=2)``."""
    imported = "from alembic_ext import CreateFairqueueOp, DowngradeFairqueueOp, DropFairqueueOp, UpgradeFairqueueOp"
    up = f"{imported}\nop.invoke(CreateFairqueueOp(1))\nop.invoke(UpgradeFairqueueOp(1, 2))"
    down = f"{imported}\nop.invoke(DowngradeFairqueueOp(2, 1))\nop.invoke(DropFairqueueOp(1))"
    project.migration("one", up, down)
    project.point_at(empty_database.url)
    project.run("upgrade", "head")
    assert catalog(empty_database) == catalog(make_database(version=2))
    project.run("downgrade", "base")
    assert catalog(empty_database) == {}
