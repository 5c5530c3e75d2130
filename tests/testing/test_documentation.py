"""The pages about testing and jobs: their files are applications whose tests pass."""

import re
from pathlib import Path

import pytest
from sqlalchemy import URL

import sqlalchemy_fairqueue
from tests.docs.pages import blocks
from tests.fixtures.database import Database
from tests.testing.runs import pytest_said

_DOCS = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    ("page", "tests", "driver"),
    [
        ("testing", 14, "psycopg2"),
        ("jobs", 1, "psycopg"),
        pytest.param("testing", 14, "psycopg", marks=pytest.mark.whole),
        pytest.param("jobs", 1, "psycopg2", marks=pytest.mark.whole),
    ],
)
def test_the_files_of_the_page(page: str, tests: int, driver: str, database: Database, tmp_path: Path) -> None:
    """Each block that begins with a file's name is written there, and pytest passes all their tests on each driver."""
    url = database.url.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)
    for block in re.findall(r"```python\n(.*?)```", (_DOCS / f"{page}.md").read_text(), re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None, block
        (tmp_path / name[1]).write_text(block)
    said = pytest_said(tmp_path, DATABASE_URL=url, FAIRQUEUE_TEST_SERVER_URL=url)
    assert f"{tests} passed" in said, said
    assert database.value("select count(*) from fq_message") == 0


_TEST = """
from shop.models import Upload
from shop.queues import queue
from sqlalchemy_fairqueue.testing import all_enqueued

def test_tables_of_both(fairqueue_session):
    fairqueue_session.add(Upload(customer="alice", text="three short words"))
    queue.enqueue(fairqueue_session, channel="alice", payload=1, kind="parse")
    fairqueue_session.commit()
    assert len(all_enqueued(fairqueue_session, queue)) == 1
"""


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ("", "1 passed"),
        pytest.param("config.attributes", "has no fairqueue after", marks=pytest.mark.whole, id="elsewhere"),
    ],
)
def test_migrations_of_the_start_page(
    removed: str, said: str, empty_database: Database, server_url: URL, tmp_path: Path
) -> None:
    """The application of the start page is tested with its own migrations; those that go elsewhere are noticed."""
    for block in blocks(_DOCS / "start.md"):
        if block.file is not None and not block.file.startswith("test"):
            file = tmp_path / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
    [conftest] = [one.text for one in blocks(_DOCS / "testing.md") if one.file == "conftest_with_alembic.py"]
    lines = [line for line in conftest.splitlines() if not removed or removed not in line]
    (tmp_path / "conftest.py").write_text("\n".join(lines))
    (tmp_path / "test_shop.py").write_text(_TEST)
    done = pytest_said(
        tmp_path,
        "test_shop.py",
        DATABASE_URL=empty_database.url.render_as_string(hide_password=False),
        FAIRQUEUE_TEST_SERVER_URL=server_url.render_as_string(hide_password=False),
    )
    assert said in done, done
    migrated = empty_database.value("select to_regclass('alembic_version') is not null")
    assert migrated == bool(removed), "the application's database is left alone"


_ON_ITS_SERVER = """
from sqlalchemy import text

def test_both(fairqueue_engine, postgresql):
    where = "select current_setting('data_directory')"
    [(theirs,)] = postgresql.execute(where).fetchall()
    with fairqueue_engine.connect() as connection:
        assert connection.scalar(text(where)) == theirs
"""


def test_beside_pytest_postgresql(server_url: URL, tmp_path: Path) -> None:
    """The fixture of the page puts the databases on the server that pytest-postgresql knows."""
    [conftest] = [one.text for one in blocks(_DOCS / "testing.md") if one.file == "conftest_with_pytest_postgresql.py"]
    # It starts no server as root, so it is told of one that runs.
    (tmp_path / "conftest.py").write_text(conftest.replace("postgresql_proc", "postgresql_noproc"))
    client = "from pytest_postgresql import factories\npostgresql = factories.postgresql('postgresql_noproc')\n"
    (tmp_path / "test_shop.py").write_text(client + _ON_ITS_SERVER)
    host = server_url.host or str(server_url.query["host"])
    options = (
        f"--postgresql-host={host} --postgresql-port={server_url.port or 5432} --postgresql-user={server_url.username}"
    )
    said = pytest_said(tmp_path, "-p", "pytest_postgresql.plugin", *options.split(), "test_shop.py")
    assert "1 passed" in said, said
