"""Docstrings of public names: their examples run as they stand, and what a reader calls has one."""

import asyncio
import doctest
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Queue, embedded, testing

_PACKAGES = (sqlalchemy_fairqueue, testing, embedded)
# What a program makes or calls itself; errors and what calls return are shown by the calls.
_MADE = {
    "AsyncWorker",
    "BytesCodec",
    "ChannelPolicy",
    "Context",
    "DatabaseClock",
    "Delivery",
    "Enqueue",
    "JsonCodec",
    "Queue",
    "Rate",
    "Recurrence",
    "RoleGrant",
    "Release",
    "Retry",
    "RetryPolicy",
    "Bury",
    "Worker",
}
# Properties; the examples of the decorators show what they hold.
_SHOWN_ELSEWHERE = {"Queue.handlers", "Queue.periodic_schedules"}


def _public() -> Iterator[tuple[str, Any]]:
    for package in _PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            yield name, value
            if inspect.isclass(value):
                for method, function in inspect.getmembers(value):
                    if not method.startswith("_") and inspect.getdoc(function) and callable(function):
                        yield f"{name}.{method}", function


_EXAMPLES = {name: doc for name, value in dict(_public()).items() if ">>>" in (doc := inspect.getdoc(value) or "")}


def _is_twin(name: str) -> bool:
    owner, _, method = name.rpartition(".")
    return method.startswith("a") and f"{owner}.{method[1:]}".lstrip(".") in dict(_public())


def test_what_a_reader_calls_has_an_example() -> None:
    """Functions, methods of queues, jobs and groups, and classes that programs make; a twin is shown by its like."""
    owners = ("Queue.", "Job.", "Group.", "MemberGroup.")
    wanted = {
        name
        for name, value in _public()
        if name in _MADE or name.startswith(owners) or (inspect.isroutine(value) and "." not in name)
    }
    assert sorted(n for n in wanted - set(_EXAMPLES) - _SHOWN_ELSEWHERE if not _is_twin(n)) == []


@pytest.mark.filterwarnings("ignore::sqlalchemy_fairqueue.UnhandledKindWarning")
def test_the_examples_run(engine: Engine, async_engine: AsyncEngine) -> None:
    """Each of them prints what it shows, on a queue of its own."""
    reported: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for number, (name, example) in enumerate(_EXAMPLES.items()):
        names = {key: getattr(package, key) for package in _PACKAGES for key in package.__all__}
        names |= {"asyncio": asyncio, "datetime": datetime, "timedelta": timedelta, "UTC": UTC}
        names |= {"Session": Session, "DeclarativeBase": DeclarativeBase, "MetaData": MetaData}
        names |= {"func": func, "select": select, "create_engine": create_engine, "text": text}
        names |= {"engine": engine, "async_engine": async_engine, "queue": Queue(f"example-{number}")}
        runner.run(doctest.DocTestParser().get_doctest(example, names, name, None, 0), out=reported.append)
    assert runner.failures == 0, "".join(reported)
