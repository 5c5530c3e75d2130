"""The page about metrics is true."""

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from prometheus_client import REGISTRY, generate_latest
from sqlalchemy import Engine

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.metrics import METRICS
from tests.cli.messages import enqueue

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "metrics.md"

pytestmark = pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")


def test_every_metric_is_there() -> None:
    """The table has each metric with its labels and meaning, and no other."""
    rows = re.findall(r"^\| `(fairqueue_\w+)` \| (.*?) ?\| (.*) \|$", _PAGE.read_text(), re.MULTILINE)
    labels = {metric: ", ".join(f"`{label}`" for label in metric.labels) for metric in METRICS}
    assert rows == [(metric.name, labels[metric], metric.meaning) for metric in METRICS]


def test_the_examples_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples register a collector whose metrics are scraped, and make both applications."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda *_, **__: engine)
    enqueue(engine, "a", queue=Queue("documents"))
    names: dict[str, Any] = {"__name__": "metrics_page"}
    for example in re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL):
        exec(compile(example, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    try:
        said = generate_latest(REGISTRY).decode()
    finally:
        REGISTRY.unregister(names["collector"])
    assert 'fairqueue_messages{queue="documents",state="ready"} 1.0' in said
    assert 'fairqueue_worker_hung{worker="reader-1"} 0.0' in said
    assert callable(names["asgi"])
    assert callable(names["wsgi"])
