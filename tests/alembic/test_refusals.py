"""Refusals of the operations, before anything is changed."""

from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from alembic_ext import CreateFairqueueOp, DropFairqueueOp
from alembic_ext.execution import send
from sqlalchemy_fairqueue import Queue, install_fairqueue
from sqlalchemy_fairqueue.errors import AutocommitError, IsolationError, SchemaMismatch
from sqlalchemy_fairqueue.sql import find_drift
from sqlalchemy_fairqueue.sql.files import latest_version
from tests.alembic.catalog import catalog
from tests.alembic.conftest import Project
from tests.alembic.environments import MODELS, environment
from tests.alembic.migrations import run_script, write
from tests.fixtures.database import Database

pytestmark = pytest.mark.installed


def refused(project: Project, database: Database, operation: str) -> str:
    """Run the operation online and as a script; both must fail with the same words, and change nothing."""
    before = catalog(database)
    project.migration("one", operation)
    project.point_at(database.url)
    with pytest.raises(SchemaMismatch) as online:
        project.run("upgrade", "head")
    script = project.run("upgrade", "head", "--sql")
    with pytest.raises(Exception, match=r".") as offline:
        run_script(database, script)
    said = str(online.value).split(": ", 1)[1]
    assert said in str(offline.value)
    assert catalog(database) == before
    return said


def test_what_is_not_there(project: Project, empty_database: Database) -> None:
    """A drop, a step or a grant where nothing is installed is refused. A schema that does not exist is not made in
    passing: the error says how to make it.
    """
    for operation in ("drop_fairqueue()", "upgrade_fairqueue(1, 2)", "grant_fairqueue('somebody', 'producer')"):
        said = refused(project, empty_database, f"op.{operation}")
        assert said.startswith("fairqueue is not installed in schema public; name the schema "), operation
    said = refused(project, empty_database, "op.create_fairqueue(schema='100% \"Mine\"')")
    assert said.startswith('schema "100% ""Mine""" does not exist; create it before: ')


def test_no_default_schema(project: Project, empty_database: Database) -> None:
    """A connection whose search_path names no schema that exists cannot be installed into without a name."""
    empty_database.execute(f'alter database "{empty_database.name}" set search_path to nowhere')
    project.migration("one", "op.create_fairqueue()")
    project.edit_env(
        "connection=connection, target_metadata=target_metadata",
        "connection=connection, target_metadata=target_metadata, version_table_schema='public'",
    )
    project.point_at(empty_database.url)
    with pytest.raises(SchemaMismatch, match=r"no default schema: its search_path \(nowhere\) names none that exists"):
        project.run("upgrade", "head")


def test_installed_already(project: Project, database: Database) -> None:
    """A second installation into a schema is refused, and so is a drop of another version, with both versions."""
    said = refused(project, database, "op.create_fairqueue()")
    assert said.startswith("fairqueue is installed in schema public already; ")
    database.execute("create or replace function fq_version() returns smallint immutable language sql as 'select 7'")
    said = refused(project, database, "op.drop_fairqueue(version=1)")
    assert said == "schema public holds fairqueue version 7, not 1; bring it to version 1 first"


@pytest.mark.parametrize("version", [1, 2])
def test_unreleased_versions(project: Project, database: Database, version: int) -> None:
    """What was installed before the first release is refused by each operation, comparison and call, whatever version
    it says that it is: none of them knows what it holds.
    """
    database.execute("drop function fq_version")
    database.execute(f"create function fq_version() returns integer language sql as 'select {version}'")
    words = "fairqueue of an unreleased version, which nothing upgrades: drop its tables and functions"
    for operation in (
        "create_fairqueue()",
        f"drop_fairqueue({version})",
        f"repair_fairqueue({version})",
        "upgrade_fairqueue(1, 2)",
        "downgrade_fairqueue(2, 1)",
        "grant_fairqueue('pg_monitor', 'monitor')",
    ):
        said = refused(project, database, f"op.{operation}")
        assert said == f"schema public holds {words}; put op.create_fairqueue() into an Alembic migration and run it"
    engine = sa.create_engine(database.url)
    anew = rf"{words}; put op\.create_fairqueue\(version=2\) into"
    for call in (Queue("documents").stats, install_fairqueue):
        with pytest.raises(SchemaMismatch, match=anew):
            call(engine)
    with engine.connect() as connection:
        assert [words in str(one) for one in find_drift(connection)] == [True]
    engine.dispose()
    environment(project, MODELS)
    project.migration("one", "pass")
    project.run("upgrade", "head")
    with pytest.raises(SchemaMismatch, match=anew):
        project.autogenerate("two")


def test_names_taken(project: Project, empty_database: Database) -> None:
    """Objects of the user's under names of ours are named in the error, whatever their kind; elsewhere they do not
    matter.
    """
    for statement in (
        "create table fq_message (id int)",
        "create view fq_queue as select 1",
        "create index fq_lease_expires_ix on fq_message (id)",
        "create type fq_signal as enum ('red', 'green')",
        "create function fq_now(int) returns int language sql as 'select 1'",
    ):
        empty_database.execute(statement)
    said = refused(project, empty_database, "op.create_fairqueue()")
    assert said.startswith("schema public holds objects that are not fairqueue's under names that it needs: fq_")
    named = said.split(": ")[1].split(";")[0].split(", ")
    assert sorted(named) == ["fq_lease_expires_ix", "fq_message", "fq_now", "fq_queue", "fq_signal"]
    write(project, 1, "apps")
    project.run("upgrade", "head")
    assert empty_database.value("select apps.fq_version()") == 1


def test_version_is_gone(project: Project, database: Database) -> None:
    """An installation without its fq_version() is called what it is, and how to bring the function back is said. The
    tables tell whether the version that is named for the repair can be the one that was installed.
    """
    database.execute("drop function fq_version")
    for operation in ("create_fairqueue(2)", "upgrade_fairqueue(1, 2)", "downgrade_fairqueue(2, 1)"):
        said = refused(project, database, f"op.{operation}")
        assert "fq_version() is gone; bring it back with op.repair_fairqueue(), given the version" in said, operation
    said = refused(project, database, "op.repair_fairqueue(2)")
    assert said.endswith("fq_stop_request, which are not those of version 2; name the version that was installed")


def test_schema_that_is_translated(project: Project, empty_database: Database) -> None:
    """Where the user's tables would go to another schema than ours, nothing is made."""
    project.edit_env(
        "        context.configure(\n            connection=connection,",
        '        connection = connection.execution_options(schema_translate_map={None: "apps"})\n'
        "        context.configure(\n            version_table_schema='public',\n            connection=connection,",
    )
    empty_database.execute("create schema apps")
    project.migration("one", "op.create_fairqueue()")
    project.point_at(empty_database.url)
    with pytest.raises(ValueError, match=r"schema_translate_map puts 'apps': .* write schema='apps', or set"):
        project.run("upgrade", "head")
    project.migration("one", "op.create_fairqueue(schema='apps')")
    project.run("upgrade", "head")
    assert empty_database.value("select apps.fq_version()") == latest_version()
    assert "relation fq_message" not in catalog(empty_database)


def _set_default(database: Database, setting: str, value: str) -> None:
    database.execute(f"alter database \"{database.name}\" set {setting} to '{value}'")


@pytest.mark.parametrize("level", ["serializable", "read uncommitted"])
def test_isolation_of_the_first_migration(project: Project, empty_database: Database, level: str) -> None:
    """Fairqueue is installed, granted and dropped whatever the engine's or the server's isolation level is."""
    _set_default(empty_database, "default_transaction_isolation", level)
    project.migration("one", "op.create_fairqueue(2)", "op.drop_fairqueue(2)")
    project.migration("two", "op.grant_fairqueue('pg_monitor', 'monitor')\nop.repair_fairqueue(2)", down="one")
    project.point_at(empty_database.url)
    project.run("upgrade", "head")
    assert empty_database.value("select fq_version()") == 2
    project.run("downgrade", "base")
    assert catalog(empty_database) == {}


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
@pytest.mark.parametrize(("installed", "step"), [(1, "upgrade_fairqueue(1, 2)"), (2, "downgrade_fairqueue(2, 1)")])
def test_isolation_of_a_step(project: Project, empty_database: Database, level: str, installed: int, step: str) -> None:
    """A step that would miss what others commit says which level it needs, and where to write it."""
    project.migration("one", f"op.create_fairqueue({installed})")
    project.migration("two", f"op.{step}", down="one")
    project.point_at(empty_database.url)
    project.run("upgrade", "one")
    _set_default(empty_database, "default_transaction_isolation", level)
    with pytest.raises(IsolationError, match=rf"{level.upper()}; run the migration in READ COMMITTED: in env.py, conn"):
        project.run("upgrade", "head")
    assert empty_database.value("select fq_version()") == installed
    project.edit_env(
        "connectable.connect()", 'connectable.execution_options(isolation_level="READ COMMITTED").connect()'
    )
    project.run("upgrade", "head")
    assert empty_database.value("select fq_version()") == 3 - installed


def test_a_read_only_transaction(project: Project, empty_database: Database) -> None:
    """A transaction that may not write says what makes it so."""
    project.migration("one", "pass")
    project.migration("two", "op.create_fairqueue()", down="one")
    project.point_at(empty_database.url)
    project.run("upgrade", "one")
    _set_default(empty_database, "default_transaction_read_only", "on")
    with pytest.raises(IsolationError, match=r"op.create_fairqueue\(\): .* read-only .*default_transaction_read_only"):
        project.run("upgrade", "head")
    assert catalog(empty_database).keys() <= {"relation alembic_version"}


def test_autocommit(project: Project, empty_database: Database) -> None:
    """Where each statement would be committed by itself, nothing is begun."""
    project.migration("one", "with op.get_context().autocommit_block():\n    op.create_fairqueue()")
    project.point_at(empty_database.url)
    with pytest.raises(AutocommitError, match=r"op.create_fairqueue\(\) is all or nothing, .* AUTOCOMMIT; take it out"):
        project.run("upgrade", "head")
    assert catalog(empty_database) == {}


def test_autocommit_of_an_adapter() -> None:
    """Where the driver's connection does not say so, what SQLAlchemy has around it does, as with asyncpg."""
    wire: Any = SimpleNamespace(driver_connection=object(), dbapi_connection=SimpleNamespace(autocommit=True))
    connection: Any = SimpleNamespace(connection=wire, get_execution_options=dict)
    context: Any = SimpleNamespace(dialect=SimpleNamespace(name="postgresql"), as_sql=False, connection=connection)
    with pytest.raises(AutocommitError, match=r"op.drop_fairqueue\(\) is all or nothing"):
        send(context, "op.drop_fairqueue()", None, DropFairqueueOp(1).statements())


@pytest.mark.parametrize("version", [0, 99, "1", True])
def test_unknown_version(version: object) -> None:
    """A version that the library does not know is refused before any statement, with those it knows."""
    with pytest.raises(ValueError, match=rf"there is no fairqueue version {version!r}: this library knows 1, 2; "):
        CreateFairqueueOp(version)  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", ["", "nul\0", "x" * 64, "é" * 32, "a$fairqueue$b"])
def test_impossible_schema(schema: str) -> None:
    """A name that PostgreSQL would not keep as it is, is refused before any statement."""
    with pytest.raises(ValueError, match="is not a name that PostgreSQL keeps"):
        DropFairqueueOp(1, schema)


@pytest.mark.parametrize("as_sql", [False, True])
def test_other_databases(as_sql: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """On another database than PostgreSQL the operations say so."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        operations = Operations(MigrationContext.configure(connection, opts={"as_sql": as_sql}))
        with pytest.raises(
            ValueError, match=r"op.create_fairqueue\(\) needs PostgreSQL, and this migration runs on sqlite"
        ):
            operations.invoke(CreateFairqueueOp())
    engine.dispose()
