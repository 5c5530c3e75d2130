"""Migrations of a test's project: those that install versions, and what is in one."""

from tests.alembic.conftest import LATEST, Project
from tests.fixtures.database import Database, MakeDatabase


def install(project: Project, version: int = LATEST, *schemas: str | None) -> None:
    """Install a version by a migration written by hand."""
    _write(project, version, *schemas)
    project.run("upgrade", "head")


def installed(
    project: Project,
    make_database: MakeDatabase,
    version: int = LATEST,
    schema: str | None = None,
    *,
    search_path: str | None = None,
) -> Database:
    """What `install` leaves in an empty database, cloned: installing takes ten times as long."""
    database = make_database(version=version, schema=schema)
    project.point_at(database.url, search_path=search_path)
    _write(project, version, schema)
    project.run("stamp", "head")
    return database


def _write(project: Project, version: int, *schemas: str | None) -> None:
    lines = [
        line
        for schema in schemas or (None,)
        for line in (
            "" if schema is None else f"op.execute(sa.schema.CreateSchema({schema!r}))",
            f"op.create_fairqueue(version={version}, schema={schema!r})",
        )
    ]
    project.migration("one", "\n".join(lines))


def calls(function: str) -> list[str]:
    """The operations in a function of a migration."""
    return [line.strip() for line in function.splitlines() if line.strip().startswith("op.")]
