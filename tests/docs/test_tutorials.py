"""Each tutorial works as it stands, in an empty folder and an empty database."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine

from sqlalchemy_fairqueue import Queue
from tests.docs.pages import DOCS, Reader, blocks, reader
from tests.fixtures.database import Database

# Each of the others takes as long as all of these.
_QUICK = {"script", "shop", "sqlmodel"}
_PAGES = [
    pytest.param(page, id=page.stem, marks=() if page.stem in _QUICK else pytest.mark.whole)
    for page in sorted((DOCS / "tutorials").glob("*.md"))
    if page.name != "index.md"
]


@pytest.mark.parametrize("page", _PAGES)
def test_the_tutorial_works(newcomer: Reader, page: Path) -> None:
    """Its files, programs and tests work, and print what the page shows."""
    newcomer.follow(page)


@pytest.mark.whole
@pytest.mark.parametrize("page", ["fastapi.md", "shop.md"])
def test_async_pages_on_asyncpg(empty_database: Database, tmp_path: Path, page: str) -> None:
    """The pages of FastAPI work on asyncpg as they do on psycopg."""
    url = empty_database.url.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
    # A page whose tests have a database of their own starts a private server for them: once is enough.
    with reader(tmp_path, {"DATABASE_URL": url, "FAIRQUEUE_TEST_SERVER_URL": url}) as one:
        one.follow(DOCS / "tutorials" / page)


def test_the_migration_of_django(empty_database: Database) -> None:
    """It installs a version that the library can use, and takes it away again."""
    [migration] = [block.text for block in blocks(DOCS / "tutorials" / "django.md") if block.file == "migration.py"]
    names: dict[str, Any] = {"__name__": "migration"}
    exec(migration, names)  # noqa: S102 - a file of the page
    [operation] = names["Migration"].operations
    engine = create_engine(empty_database.url, poolclass=NullPool)
    for statements in (operation.sql, operation.reverse_sql):
        with engine.begin() as connection:
            for statement, _ in statements:
                connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
        if statements is operation.sql:
            assert Queue("photos").stats(engine).ready == 0
    assert empty_database.value("select to_regclass('fq_message') is null")


def test_the_lines_beside_celery() -> None:
    """The shop has fewer lines than with Celery, and the page says how many: blank ones and comments do not count."""
    page = DOCS / "tutorials" / "shop.md"
    files = {block.file: block.text.splitlines() for block in blocks(page)}
    ours, theirs = (
        sum(1 for line in files[file] if line.strip() and not line.lstrip().startswith("#"))
        for file in ("fair_jobs.py", "celery_jobs.py")
    )
    assert ours < theirs
    assert f"| lines of code | {ours} | {theirs} |" in page.read_text()
