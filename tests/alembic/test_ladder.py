"""op.upgrade_fairqueue and op.downgrade_fairqueue: every version is what the steps to it leave."""

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine

from alembic_ext import CreateFairqueueOp, DowngradeFairqueueOp, DropFairqueueOp, UpgradeFairqueueOp
from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.errors import SchemaMismatch
from sqlalchemy_fairqueue.sql import drop_statements, install_statements
from sqlalchemy_fairqueue.sql.files import functions
from sqlalchemy_fairqueue.sql.schema import quoted
from tests.alembic.catalog import catalog
from tests.alembic.conftest import ODD, Project
from tests.alembic.migrations import ladder, migrate, roles, run_script, write
from tests.alembic.test_refusals import refused
from tests.fixtures.database import Database, MakeDatabase

pytestmark = pytest.mark.installed


@pytest.mark.many(1)
def test_steps_leave_what_an_installation_does(
    project: Project, make_database: MakeDatabase, schema: str | None
) -> None:
    """Up, down and up again, online and as scripts: both versions are object by object what installing them makes; that
    works, and can be undone, and done again.
    """
    online, offline, at_once = (make_database(installed=False) for _ in range(3))
    ladder(project, at_once, schema, installed=2)
    project.run("upgrade", "one")
    ladder(project, online, schema)
    project.run("upgrade", "one")
    run_script(offline, project.run("upgrade", "one", "--sql"))
    first = catalog(online, schema)
    assert "function fq_dequeue" in first
    assert catalog(offline, schema) == first

    for way, revisions in 2 * (("upgrade", "one:two"), ("downgrade", "two:one")):
        for database, script in ((online, False), (offline, True)):
            migrate(project, database, way, revisions, script=script)
            assert catalog(database, schema) == (catalog(at_once, schema) if way == "upgrade" else first)

    queue, engine = Queue("q", schema=schema), create_engine(offline.url, poolclass=NullPool)
    queue.enqueue(engine, channel="c", payload=1)
    [delivery] = queue.dequeue(engine)
    queue.complete(engine, delivery)
    project.run("downgrade", "base")
    run_script(offline, project.run("downgrade", "one:base", "--sql"))
    assert catalog(online, schema) == catalog(offline, schema) == {}
    project.run("upgrade", "one")
    assert catalog(online, schema) == first


def test_privileges_stay(project: Project, empty_database: Database) -> None:
    """Who may call a function is the same after the steps, whether it was replaced or made again."""
    ladder(project, empty_database)
    project.run("upgrade", "one")
    with roles(empty_database, "caller") as (caller,):
        empty_database.execute("revoke execute on all functions in schema public from public")
        empty_database.execute(
            f'grant execute on function fq_enqueue, fq_end_attempts, fq_version to "{caller}" with grant option'
        )
        before = catalog(empty_database, kinds=("function",))
        project.run("upgrade", "two")
        granted = {name: facts[-1] for name, facts in catalog(empty_database, kinds=("function",)).items()}
        assert {name: granted[name] for name in before} == {name: facts[-1] for name, facts in before.items()}
        project.run("downgrade", "one")
        assert catalog(empty_database, kinds=("function",)) == before


def test_default_privileges_are_for_what_is_new(project: Project, empty_database: Database) -> None:
    """Default privileges that the database got between two steps change nothing for functions that there were."""
    ladder(project, empty_database)
    project.run("upgrade", "one")
    callers = "select string_agg(p.proname || ' by ' || a.grantee::regrole, ', ' order by p.proname, a.grantee)"
    callers += " from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where proname = any(:of)"
    with roles(empty_database, "other") as (other,):
        before = empty_database.value(callers, of=list(functions(1)))
        empty_database.execute("alter default privileges revoke execute on functions from public")
        empty_database.execute(f'alter default privileges grant execute on functions to "{other}" with grant option')
        for way, revision in (("upgrade", "two"), ("downgrade", "one")):
            project.run(way, revision)
            assert empty_database.value(callers, of=list(functions(1))) == before


def test_a_step_that_cannot_be_made_is_refused(project: Project, empty_database: Database) -> None:
    """A step where another version is installed, or where a table of the user's has the name of a new one, says so
    before anything is changed.
    """
    run_script(empty_database, ";".join(install_statements(1, None)))
    said = refused(project, empty_database, "op.downgrade_fairqueue(2, 1)")
    assert said == "schema public holds fairqueue version 1, not 2; bring it to version 2 first"
    ladder(project, empty_database)
    project.run("stamp", "one")
    empty_database.execute("create table fq_annotation (id int)")
    before = catalog(empty_database)
    with pytest.raises(SchemaMismatch, match="not fairqueue's under names that it needs: fq_annotation; rename them"):
        project.run("upgrade", "two")
    assert catalog(empty_database) == before


@pytest.mark.parametrize("kind", [UpgradeFairqueueOp, DowngradeFairqueueOp])
@pytest.mark.parametrize("versions", [(1, 1), (1, 2), (2, 1), (1, 99), (0, 1)])
def test_direction(kind: type[UpgradeFairqueueOp | DowngradeFairqueueOp], versions: tuple[int, int]) -> None:
    """An upgrade goes up and a downgrade down, between versions that exist; anything else is a ValueError."""
    if versions == ((1, 2) if kind is UpgradeFairqueueOp else (2, 1)):
        kind(*versions)
        return
    with pytest.raises(ValueError, match=r"does not; give|there is no fairqueue version"):
        kind(*versions)


def test_each_operation_has_an_inverse() -> None:
    """It is undone by another one of the same versions and schema, which it undoes."""
    steps = (UpgradeFairqueueOp(1, 2, "Apps"), DowngradeFairqueueOp(2, 1, "Apps"))
    for one in (CreateFairqueueOp(2, "Apps"), DropFairqueueOp(2, "Apps"), *steps):
        inverse = one.reverse()
        assert (type(inverse) is type(one), {*inverse.versions}, inverse.schema) == (False, {*one.versions}, "Apps")
        assert inverse.reverse().to_diff_tuple() == one.to_diff_tuple()


@pytest.mark.parametrize(("schema", "script"), [(None, False), (ODD, True)], ids=["online", "script"])
def test_staging_tables_go(project: Project, empty_database: Database, schema: str | None, *, script: bool) -> None:
    """What a load left behind is dropped with fairqueue; a table of the user's with such a name stays."""
    write(project, 1, schema)
    project.point_at(empty_database.url)
    project.run("upgrade", "one")
    prefix = f"{quoted(schema or 'public')}."
    run_script(empty_database, f"select {prefix}fq_make_stage(3600000000) from generate_series(1, 2)")
    run_script(empty_database, f"create table {prefix}fq_stage_1_mine (id bigint)")
    run_script(empty_database, f"create unlogged table {prefix}fq_stage_1_0123456789ab (id bigint)")
    migrate(project, empty_database, "downgrade", "one:base", script=script)
    rows = empty_database.rows("select relname from pg_class where relkind = 'r' and starts_with(relname, 'fq_stage_')")
    assert {row.relname for row in rows} == {"fq_stage_1_mine", "fq_stage_1_0123456789ab"}


def test_the_schema_of_the_stages(empty_database: Database) -> None:
    """It is made and dropped with fairqueue; who may not make it, or finds something else in it, is told."""
    told: list[str | None] = []
    schemas = "select count(*) from pg_namespace where nspname = 'jobs_stages'"
    with (
        roles(empty_database, "loader", "migrator") as (loader, migrator),
        psycopg.connect(empty_database.conninfo, autocommit=True) as connection,
    ):
        connection.add_notice_handler(lambda notice: told.append(notice.message_primary))

        def run(*statements: str, role: str = "none") -> None:
            for statement in (f"set role {role}", *statements):
                connection.execute(statement.encode())

        run("create schema jobs", f"grant all on schema jobs to {migrator}", f"grant usage on schema jobs to {loader}")
        run(*install_statements(1, "jobs"), role=migrator)
        assert told.pop() == (
            f"bulk loads need a schema jobs_stages of role {migrator}, and role {migrator} may not make it"
        )
        grant, load = (
            f"grant execute on function jobs.fq_make_stage to {loader}",
            "select jobs.fq_make_stage(3600000000)",
        )
        run(grant, role=migrator)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no schema jobs_stages for staging tables"):
            run(load, role=loader)
        run(*drop_statements(1, "jobs"), role=migrator)

        run(f"grant create on database {empty_database.name} to {migrator}")
        for stays in (0, 1):
            run(*install_statements(1, "jobs"), grant, role=migrator)
            run(load, role=loader)
            if stays:
                run("create table jobs_stages.mine ()", role=migrator)
            run(*drop_statements(1, "jobs"), role=migrator)
            assert empty_database.value(schemas) == stays
    assert told == ["schema jobs_stages holds objects that are not fairqueue's and stays"]
