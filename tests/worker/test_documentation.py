"""The page about workers."""

import re
from pathlib import Path
from types import ModuleType

import pytest
import sqlalchemy
from sqlalchemy import Engine

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Queue
from tests.fixtures.database import Database
from tests.worker.helpers import LISTENERS, is_empty, send, until

_DOCS = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs"
_PAGE = _DOCS / "workers.md"


def test_the_example_runs(engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's worker runs as it stands, and its handlers do what they say."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    example = _PAGE.read_text().split("```python\n")[1].partition("```")[0]
    module = ModuleType("example")
    # Annotations are looked up in the module.
    exec(compile(example, str(_PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page
    queue: Queue = module.__dict__["queue"]
    send(engine, queue, {"upload": "a"}, kind="parse")
    send(engine, queue, {"pages": ["a"]}, kind="call")
    send(engine, queue, {"pages": ["busy"]}, kind="call")
    with module.__dict__["worker"] as worker:
        until(lambda: worker.stats.completed == 2 and worker.stats.retried == 1, "all have ended")
    assert not is_empty(database)


def test_the_pooler_example_runs(engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's worker for a pooler works without a listening connection."""
    asked: dict[str, object] = {}

    def create_engine(_: str, **options: object) -> Engine:
        asked.update(options)
        return engine

    monkeypatch.setattr(sqlalchemy, "create_engine", create_engine)
    example = _PAGE.read_text().split("```python\n")[2].partition("```")[0]
    module = ModuleType("example")
    exec(compile(example, str(_PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page
    worker = module.__dict__["worker"]
    worker._settings.queues[0].handler()(lambda _: None)
    with worker:
        send(engine, Queue("documents"), 1)
        until(lambda: is_empty(database), "it works")
        assert database.value(LISTENERS) == 0
    assert asked == {"connect_args": {"prepare_threshold": None}}


def test_links() -> None:
    """What the page points to is there."""
    targets = re.findall(r"\]\(([^)]+)\)", _PAGE.read_text())
    assert targets
    for target in targets:
        name, _, anchor = target.partition("#")
        page = _DOCS / name if name else _PAGE
        assert page.exists(), target
        assert not anchor or f'<a id="{anchor}"></a>' in page.read_text(), target
