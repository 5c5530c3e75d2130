"""Migrations of a test's project: those that install versions, and what is in one."""

from tests.alembic.conftest import LATEST, Project


def install(project: Project, version: int = LATEST, *schemas: str | None) -> None:
    """Install a version by a migration written by hand."""
    lines = [
        line
        for schema in schemas or (None,)
        for line in (
            "" if schema is None else f"op.execute(sa.schema.CreateSchema({schema!r}))",
            f"op.create_fairqueue(version={version}, schema={schema!r})",
        )
    ]
    project.migration("one", "\n".join(lines))
    project.run("upgrade", "head")


def calls(function: str) -> list[str]:
    """The operations in a function of a migration."""
    return [line.strip() for line in function.splitlines() if line.strip().startswith("op.")]
