"""The examples of the page of drivers run as they stand, each on the driver that its URL names."""

from types import ModuleType

import pytest
from sqlalchemy import Engine

from tests.docs.pages import DOCS, blocks
from tests.fixtures.database import Database

_EXAMPLES = [block.text for block in blocks(DOCS / "drivers.md") if block.language == "python"]


@pytest.mark.parametrize("example", _EXAMPLES)
def test_examples_run(make_database: type[Database], example: str) -> None:
    """An example enqueues, works or installs on the test's database; the engines of a pooler are made."""
    database = make_database(installed="install_fairqueue" not in example)  # type: ignore[call-arg]
    text = example
    for driver in ("psycopg", "psycopg2", "asyncpg"):
        url = database.url.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)
        text = text.replace(f'"postgresql+{driver}://localhost/app"', repr(url))
    names = ModuleType("example").__dict__
    exec(compile(text, "drivers.md", "exec"), names)  # noqa: S102 - our own page
    for engine in [one for one in names.values() if isinstance(one, Engine)]:
        engine.dispose()
    messages = 1 if "psycopg://" in example and "enqueue(" in example else 0
    assert database.value("select count(*) from fq_message") == messages
