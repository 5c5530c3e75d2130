"""Migrations of a test's project: those that install versions, and what is in one; and roles that they grant to."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.alembic.conftest import LATEST, Project
from tests.fixtures.database import Database, MakeDatabase


def run_script(database: Database, script: str) -> None:
    """Run a script as ``psql -v ON_ERROR_STOP=1`` does: text to the server, nothing replaced."""
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        connection.execute(script.encode())


def migrate(project: Project, database: Database, way: str, revisions: str, *, script: bool = False) -> None:
    """Go up or down from a revision to another one, ``"one:two"``, by the connection or as a script."""
    if script:
        run_script(database, project.run(way, revisions, "--sql"))
    else:
        project.run(way, revisions.rpartition(":")[2])


@contextmanager
def roles(database: Database, *names: str) -> Iterator[list[str]]:
    """Roles of the test's own, in that order; they leave nothing behind."""
    made = [f"{name}_{database.name}" for name in names]
    for name in made:
        database.execute(f'create role "{name}"')
    try:
        yield made
    finally:
        for name in made:
            if database.value("select true from pg_roles where rolname = :name", name=name):
                database.execute(f'drop owned by "{name}" cascade')
                database.execute(f'drop role "{name}"')


def ladder(project: Project, database: Database, schema: str | None = None, installed: int = 1) -> None:
    """Write two migrations: one installs a version, the other climbs from version 1 to 2."""
    write(project, installed, schema)
    up, down = (f"op.{step}, schema={schema!r})" for step in ("upgrade_fairqueue(1, 2", "downgrade_fairqueue(2, 1"))
    project.migration("two", up, down, down="one")
    project.point_at(database.url)


def install(project: Project, version: int = LATEST, *schemas: str | None) -> None:
    """Install a version by a migration written by hand."""
    write(project, version, *schemas)
    project.run("upgrade", "head")


def installed(
    project: Project, make_database: MakeDatabase, version: int = LATEST, schema: str | None = None
) -> Database:
    """What `install` leaves in an empty database, cloned: installing takes ten times as long."""
    database = make_database(version=version, schema=schema)
    project.point_at(database.url)
    write(project, version, schema)
    project.run("stamp", "head")
    return database


def write(project: Project, version: int, *schemas: str | None) -> None:
    """Write the migration that installs a version, and drops it again."""
    up, down = "", ""
    for schema in schemas or (None,):
        up += "" if schema is None else f"op.execute(sa.schema.CreateSchema({schema!r}, if_not_exists=True))\n"
        up += f"op.create_fairqueue(version={version}, schema={schema!r})\n"
        down += f"op.drop_fairqueue(version={version}, schema={schema!r})\n"
    project.migration("one", up, down)


def calls(function: str) -> list[str]:
    """The operations in a function of a migration."""
    return [line.strip() for line in function.splitlines() if line.strip().startswith("op.")]
