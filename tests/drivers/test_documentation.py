"""The examples of the page of drivers run as they stand, each on the driver that its URL names."""

from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import Engine

import sqlalchemy_fairqueue
from tests.fixtures.database import Database

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "drivers.md"
_EXAMPLES = [part.partition("```")[0] for part in _PAGE.read_text().split("```python\n")[1:]]


def _url(database: Database, driver: str) -> str:
    return database.url.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)


@pytest.mark.parametrize("example", _EXAMPLES)
def test_examples_run(make_database: type[Database], example: str) -> None:
    """An example enqueues, works or installs on the test's database; the engines of a pooler are made."""
    database = make_database(installed="install_fairqueue" not in example)  # type: ignore[call-arg]
    text = example
    for driver in ("psycopg", "psycopg2", "asyncpg"):
        text = text.replace(f'"postgresql+{driver}://localhost/app"', repr(_url(database, driver)))
    names = ModuleType("example").__dict__
    exec(compile(text, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    for engine in [one for one in names.values() if isinstance(one, Engine)]:
        engine.dispose()
    messages = 1 if "psycopg://" in example and "enqueue(" in example else 0
    assert database.value("select count(*) from fq_message") == messages
