"""The dashboard, the alert rules and the page about metrics name metrics that there are, with their labels."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import sqlalchemy
import yaml
from prometheus_client import REGISTRY, generate_latest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.metrics import METRICS
from tests.cli.messages import enqueue
from tests.docs.pages import DOCS, blocks

_PAGE = DOCS / "metrics.md"
on_the_page = pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")
_FOLDER = files("sqlalchemy_fairqueue.metrics")
_DASHBOARD: dict[str, Any] = json.loads(_FOLDER.joinpath("grafana_dashboard.json").read_text("utf-8"))
_RULES: Any = yaml.safe_load(_FOLDER.joinpath("alert_rules.yaml").read_text("utf-8"))["groups"][0]["rules"]
_LABELS = {name: set(labels) for metric in METRICS for name, labels in metric.series.items()}
# Prometheus adds these to every series.
_TARGET = {"job", "instance"}


def _expressions() -> Iterator[str]:
    yield from (target["expr"] for panel in _DASHBOARD["panels"] for target in panel["targets"])
    yield from (
        variable["query"]["query"] for variable in _DASHBOARD["templating"]["list"] if variable["type"] == "query"
    )
    yield from (rule["expr"] for rule in _RULES)


def test_metrics_and_labels() -> None:
    """An expression names metrics that are exported, and only labels that they have."""
    for expression in _expressions():
        names = re.findall(r"\bfairqueue_\w+", expression)
        assert names, expression
        assert set(names) <= set(_LABELS), expression
        for name, selector in re.findall(r"(fairqueue_\w+)\{(.*?)\}", expression):
            assert set(re.findall(r"(\w+)=", selector)) <= _LABELS[name], expression
        for words in re.findall(r"\b(?:by|on) \((.*?)\)", expression):
            assert set(words.split(", ")) <= set.intersection(*(_LABELS[name] for name in names)) | _TARGET, expression


def test_every_metric_is_on_the_dashboard() -> None:
    """The dashboard shows each metric."""
    asked = json.dumps(_DASHBOARD)
    assert [metric.name for metric in METRICS if metric.name not in asked] == []


def test_legends_and_annotations_use_labels_of_their_series() -> None:
    """What a legend or an annotation shows is a label of the metrics that it is about."""
    for panel in _DASHBOARD["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"\bfairqueue_\w+", target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= _LABELS[names[0]]
    for rule in _RULES:
        names = re.findall(r"\bfairqueue_\w+", rule["expr"])
        shown = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert shown <= _LABELS[names[0]] | _TARGET
        assert {"summary", "description"} == set(rule["annotations"])


def test_no_label_is_a_tenant() -> None:
    """The number of series does not depend on tenants."""
    assert set.union(*_LABELS.values()) == {"queue", "state", "quantile", "worker", "event", "le"}


@on_the_page
def test_every_metric_is_there() -> None:
    """The table has each metric with its labels and meaning, and no other."""
    rows = re.findall(r"^\| `(fairqueue_\w+)` \| (.*?) ?\| (.*) \|$", _PAGE.read_text(), re.MULTILINE)
    labels = {metric: ", ".join(f"`{label}`" for label in metric.labels) for metric in METRICS}
    assert rows == [(metric.name, labels[metric], metric.meaning) for metric in METRICS]


@on_the_page
def test_the_examples_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples register a collector whose metrics are scraped, and make both applications."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda *_, **__: engine)
    enqueue(engine, "a", queue=Queue("documents"))
    names: dict[str, Any] = {"__name__": "metrics_page"}
    for example in [one.text for one in blocks(_PAGE) if one.language == "python"]:
        exec(compile(example, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    try:
        said = generate_latest(REGISTRY).decode()
    finally:
        REGISTRY.unregister(names["collector"])
    assert 'fairqueue_messages{queue="documents",state="ready"} 1.0' in said
    assert 'fairqueue_worker_hung{worker="reader-1"} 0.0' in said
    assert callable(names["asgi"])
    assert callable(names["wsgi"])
