"""Docstrings of public names: their examples run as they stand, and every name has one or is named by one."""

import asyncio
import doctest
import inspect
import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from typing import Any

import flask
import pytest
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, MetaData, create_engine, event, func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Session
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

import alembic_ext
import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import (
    Queue,
    dashboard,
    embedded,
    errors,
    metrics,
    models,
    otel,
    queue,
    reporting,
    reports,
    testing,
)
from sqlalchemy_fairqueue.testing import factories

# The operations first: on a database without messages each of them can be done.
_PACKAGES = (alembic_ext, sqlalchemy_fairqueue, queue, reports, testing, factories, embedded, metrics, otel, dashboard)
# Of the report, what programs call and catch. Its figures, each a field of the others, are defined on the page itself.
_OF_REPORTS = (
    *("Advice", "HistoryEmpty", "HistoryTooLong", "HistoryUnreadable", "Objective", "RecordedHistory", "Report"),
    *("Scenario", "read_archive", "read_history", "report"),
)
# Mapped classes of rows that only the functions of the database and workers work with.
_ROWS_OF_THE_KERNEL = {
    *("ChannelState", "GroupFollowup", "GroupNote", "LimitShare", "Round"),
    *("Epoch", "Promotion", "QueueState", "ResultWait", "Signal", "Size"),
}
# What SQLAlchemy calls of a type, and types that no query names.
_OF_TYPES = {"FairqueueMixin", "RoleName", "Xid8"}
_IMPORTED = {
    "Callable": Callable,
    "UTC": UTC,
    "asyncio": asyncio,
    "date": date,
    "datetime": datetime,
    "json": json,
    "timedelta": timedelta,
    "warnings": warnings,
    "zlib": zlib,
    "DeclarativeBase": DeclarativeBase,
    "MetaData": MetaData,
    "Session": Session,
    "create_engine": create_engine,
    "event": event,
    "func": func,
    "select": select,
    "text": text,
    "Mount": Mount,
    "Request": Request,
    "Starlette": Starlette,
    "flask": flask,
    "CollectorRegistry": CollectorRegistry,
    "InMemoryMetricReader": InMemoryMetricReader,
    "MeterProvider": MeterProvider,
    "TracerProvider": TracerProvider,
}
# Members that other parts of the library call, or an interface of another library; nobody else has a use for them.
_CALLED_BY_OTHERS = {
    "Context": {"with_session"},
    "MetricDefinition": {"family"},
    "Objective": {"missed", "value"},
    "Programs": {"below", "copy_below", "trees"},
    "QueueCollector": {"collect", "describe", "families"},
    "Recurrence": {"timing", "words"},
    "Scenario": {"policies_of"},
    "WorkerCollector": {"collect"},
    "WorkerStats": {"count"},
}
# Alembic calls these of each operation.
_OF_OPERATIONS = {"arguments", "statements", "to_diff_tuple", "versions"}
# What they take has no place in a docstring: a role with a grant, an archive that Spark made, pandas. docs/roles.md and
# docs/spark.md show them.
_WITHOUT = {"NotGranted", "read_archive", "Report.channels", "Report.queues", "Report.windows"}
_MODULE = re.compile(r"^sqlalchemy_fairqueue\.(?:(?:errors|queue|reports|testing)\.)?")
_ROLE = re.compile(r":(?:class|func|meth):`~?([\w.]+)`")


def _public() -> Iterator[tuple[str, Any]]:
    """The functions and classes, and the methods and properties that these have from here, by name."""
    names = [(package, name) for package in _PACKAGES for name in package.__all__]
    names += [(reporting, name) for name in _OF_REPORTS]
    names += [(errors, name) for name in errors.__all__ if inspect.isclass(getattr(errors, name))]
    for package, name in names:
        value = getattr(package, name)
        if inspect.isroutine(value):
            yield name, value
        elif inspect.isclass(value):
            yield name, value
            for member, found in inspect.getmembers(value):
                if not member.startswith("_") and _is_documented(value, member):
                    yield f"{name}.{member}", found


def _is_documented(owner: type, member: str) -> bool:
    maker = next((base for base in owner.__mro__ if member in vars(base)), object)
    found = vars(maker).get(member)
    is_ours = maker.__module__.split(".")[0] in {"sqlalchemy_fairqueue", "alembic_ext"}
    return is_ours and (isinstance(found, property | classmethod | staticmethod) or inspect.isroutine(found))


def _models() -> Iterator[tuple[str, Any]]:
    """The mapped classes and their types, under names of their own: a Group is another thing there."""
    for name in models.__all__:
        value = getattr(models, name)
        is_of_a_class = name.removesuffix("Mixin") in {*models.__all__} - {name}
        is_exempt = is_of_a_class or name in _ROWS_OF_THE_KERNEL | _OF_TYPES
        if callable(value) and not is_exempt and value is not _PUBLIC.get(name):
            yield f"models.{name}", value


_PUBLIC = dict(_public())
_PUBLIC |= dict(_models())
# Alembic moves the docstring of a method that it makes an operation of: op.create_fairqueue has it.
_DOCS = {
    name: inspect.getdoc(getattr(Operations, name.rpartition(".")[2], value)) or "" for name, value in _PUBLIC.items()
}
_EXAMPLES = {name: doc for name, doc in _DOCS.items() if ">>>" in doc}


def _named_by(name: str) -> set[str]:
    """The names that have an example and that the section "See Also" of a name names."""
    owner = name.partition(".")[0]
    named = _ROLE.findall(_DOCS[name].partition("See Also:")[2])
    candidates = {_MODULE.sub("", one) for one in named}
    return {one for each in candidates for one in (each, f"{owner}.{each}") if one in _EXAMPLES}


def _is_shown(name: str) -> bool:
    owner, _, member = name.rpartition(".")
    if name in _EXAMPLES or _named_by(name) or name in _WITHOUT:
        return True
    if not owner:
        # An awaited helper is shown by its like.
        return name.startswith("a") and name[1:] in _EXAMPLES
    if member in _CALLED_BY_OTHERS.get(owner, ()) or (owner.endswith("FairqueueOp") and member in _OF_OPERATIONS):
        return True
    beside = {one for one in _EXAMPLES if one.partition(".")[0] == owner} | _named_by(owner)
    members = {member, member.removeprefix("a")} if f"{owner}.{member[1:]}" in _PUBLIC else {member}
    return any(re.search(rf">>> .*\.{one}\b|\.\.\. .*\.{one}\b", _EXAMPLES[each]) for each in beside for one in members)


def test_every_public_name_has_an_example() -> None:
    """Functions, classes, methods and properties: one of their own, one that they name, or one of their class."""
    assert sorted(name for name in _PUBLIC if not _is_shown(name)) == []


def test_no_exemption_is_left_over() -> None:
    """An exempt name exists, and has no example."""
    exempt = {f"{owner}.{member}" for owner, members in _CALLED_BY_OTHERS.items() for member in members} | _WITHOUT
    assert sorted(exempt - _PUBLIC.keys()) == []
    assert sorted(exempt & _EXAMPLES.keys()) == []


def test_the_examples_run(engine: Engine, async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them prints what it shows, on a queue of its own."""
    monkeypatch.setenv(embedded.DATABASE_URL_VARIABLE, engine.url.render_as_string(hide_password=False))
    reported: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    shared = {key: getattr(package, key) for package in _PACKAGES for key in package.__all__}
    shared |= {name: getattr(errors, name) for name in errors.__all__}
    shared |= {name: getattr(reporting, name) for name in _OF_REPORTS} | _IMPORTED
    shared |= {"engine": engine, "async_engine": async_engine}
    for number, (name, example) in enumerate(_EXAMPLES.items()):
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", sqlalchemy_fairqueue.UnhandledKindWarning)
            names = shared | {"queue": Queue(f"documents-{number}")}
            if name.startswith("models."):
                names |= {key: getattr(models, key) for key in models.__all__}
            if name.partition(".")[0] in alembic_ext.__all__:
                connection = stack.enter_context(engine.connect())
                names["op"] = Operations(MigrationContext.configure(connection))
            runner.run(doctest.DocTestParser().get_doctest(example, names, name, None, 0), out=reported.append)
    assert runner.failures == 0, "".join(reported)
