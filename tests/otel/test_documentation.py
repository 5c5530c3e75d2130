"""The page about traces is true."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine

from sqlalchemy_fairqueue.otel import instrumentation, uninstrument
from sqlalchemy_fairqueue.testing import perform
from tests.docs.pages import DOCS, blocks

_PAGE = DOCS / "tracing.md"

pytestmark = pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")


def test_the_examples_run(engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Each example of the page runs, after those before it; the hook tells of failures, and of the last attempt."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    names: dict[str, Any] = {"__name__": "tracing_page"}
    try:
        for example in [one.text for one in blocks(_PAGE) if one.language == "python"]:
            exec(compile(example, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    finally:
        uninstrument()
    assert names["worker"].name
    names["orders"].handler("bill")(lambda delivery: 1 / delivery.payload)
    for attempt, last in ((1, False), (20, True)):
        caplog.clear()
        with pytest.raises(ZeroDivisionError):
            perform(names["orders"], 0, kind="bill", attempt=attempt)
        assert caplog.messages == [f"bill failed: ZeroDivisionError('division by zero'), last attempt: {last}"]


def test_every_metric_is_there() -> None:
    """The page has each metric that the module makes."""
    source = Path(instrumentation.__file__).read_text()
    made = set(re.findall(r'"((?:messaging|fairqueue)\.[a-z]+\.[a-z.]+)",\s', source))
    assert len(made) == 7
    assert {name for name in made if f"| `{name}` |" not in _PAGE.read_text()} == set()
