"""Scripts of ``alembic upgrade --sql``, run by psql as they are."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sqlalchemy_fairqueue.sql import assert_no_drift
from sqlalchemy_fairqueue.sql.catalog import installed_version
from tests.alembic.catalog import catalog
from tests.alembic.conftest import LATEST, Project
from tests.alembic.migrations import ladder
from tests.fixtures.database import Database
from tests.fixtures.server import programs

pytestmark = pytest.mark.installed

# What psql might take for its own: a variable, a command, the end of a statement, the quotes of a body.
SCHEMA = """My "odd" %:sch'e$$ma :DBNAME \\d; --"""


def run_in_psql(database: Database, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the documentation says."""
    beside_server = Path(programs().directory) / "psql"
    program = beside_server if beside_server.is_file() else shutil.which("psql")
    assert program, "psql is not installed"
    return subprocess.run(
        [str(program), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database.conninfo, "-f", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )


def test_ladder(project: Project, empty_database: Database) -> None:
    """Installation, steps and drop, in a schema whose name psql could trip over, leave what they should."""
    ladder(project, empty_database, SCHEMA)
    users = "op.execute(\"comment on schema public is 'it is 100% ours'\")"
    project.migration("three", f"{users}\nop.repair_fairqueue({LATEST}, schema={SCHEMA!r})\n{users}", down="two")
    done = run_in_psql(empty_database, project.run("upgrade", "head", "--sql"))
    assert (done.returncode, done.stderr) == (0, "")
    with empty_database.own.connect() as connection:
        assert installed_version(connection, SCHEMA) == LATEST
        assert_no_drift(connection, SCHEMA)
    done = run_in_psql(empty_database, project.run("downgrade", "three:base", "--sql"))
    assert (done.returncode, done.stderr) == (0, "")
    assert catalog(empty_database, SCHEMA) == {}
    assert empty_database.value("select obj_description('public'::regnamespace)") == "it is 100% ours"


def test_refusal(project: Project, empty_database: Database) -> None:
    """A refusal ends the script with psql's status for it, and nothing of the migration stays."""
    project.migration("one", 'op.create_table("upload", sa.Column("id", sa.Integer))\nop.upgrade_fairqueue(1, 2)')
    project.point_at(empty_database.url)
    done = run_in_psql(empty_database, project.run("upgrade", "head", "--sql"))
    assert done.returncode == 3
    assert "fairqueue is not installed in schema public; name the schema" in done.stderr
    assert catalog(empty_database) == {}


def test_autocommit(project: Project, empty_database: Database) -> None:
    """A script whose statements are committed one by one is refused after the guard, and has changed nothing."""
    project.migration("one", "op.create_fairqueue(version=1)")
    project.migration("two", "with op.get_context().autocommit_block():\n    op.upgrade_fairqueue(1, 2)", down="one")
    project.point_at(empty_database.url)
    project.run("upgrade", "one")
    before = catalog(empty_database)
    done = run_in_psql(empty_database, project.run("upgrade", "one:two", "--sql"))
    assert done.returncode == 3
    assert "op.upgrade_fairqueue() is all or nothing, and the connection is in AUTOCOMMIT; take it out" in done.stderr
    assert catalog(empty_database) == before
