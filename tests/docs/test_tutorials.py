"""Each tutorial works as it stands, in an empty folder and an empty database."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Reader, reader
from tests.fixtures.database import Database

_PAGES = sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.name != "index.md")


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_the_tutorial_works(newcomer: Reader, page: Path) -> None:
    """Its files, programs and tests work, and print what the page shows."""
    newcomer.follow(page)


def test_fastapi_on_asyncpg(empty_database: Database, tmp_path: Path) -> None:
    """The page for FastAPI works on asyncpg as it does on psycopg."""
    url = empty_database.url.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
    with reader(tmp_path, {"DATABASE_URL": url}) as one:
        one.follow(DOCS / "tutorials" / "fastapi.md")
