"""Handlers of child processes whose module takes long to import, or cannot be imported."""

import importlib
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue, RetryPolicy, Worker
from tests.fixtures.database import Database
from tests.worker.helpers import retimed, send, until

_LATER = RetryPolicy(first=timedelta(hours=1), cap=timedelta(hours=1), jitter=0)


_PROCESS: Any = {"isolation": "process"}


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with a handler, whose import in a child says so and waits for the file ``go``."""
    (tmp_path / "slow_to_import.py").write_text(_SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("slow_to_import")
    del sys.modules["slow_to_import"]


_SLOW = """
import multiprocessing, pathlib, threading
folder = pathlib.Path(__file__).parent
if multiprocessing.parent_process() is not None:
    (folder / "importing").touch()
    while not (folder / "go").exists():
        threading.Event().wait(0.005)

def handle(delivery):
    pass
"""


def test_an_import_takes_no_time_of_the_handler(queue: Queue, engine: Engine, tmp_path: Path, importing: Any) -> None:
    """The time of a handler begins when its child has imported it."""
    queue.handler(timeout=timedelta(minutes=5), **_PROCESS)(importing.handle)
    send(engine, queue, 1)
    with Worker(engine, queue, housekeeping=False) as worker:
        until((tmp_path / "importing").exists, "it is imported")
        assert worker._runtime is not None
        [held] = worker._runtime.executor.running
        assert held.time_over_at is None
        (tmp_path / "go").touch()
        until(lambda: worker.stats.completed == 1, "it is done")
    assert held.time_over_at is not None


def test_an_import_that_fails(
    queue: Queue, engine: Engine, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that cannot import the handler says why, and the attempt has failed."""
    failing = "import multiprocessing\nif multiprocessing.parent_process():\n    raise ImportError('only here')\n"
    (tmp_path / "failing_to_import.py").write_text(f"{failing}def handle(delivery): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    queue.handler(**_PROCESS)(importlib.import_module("failing_to_import").handle)
    send(engine, queue, 1)
    with Worker(engine, queue, retry=_LATER, housekeeping=False) as worker:
        until(lambda: worker.stats.retried == 1, "it has failed")
    del sys.modules["failing_to_import"]
    assert "ImportError: only here" in database.value("select error from fq_message")


def test_an_import_that_never_ends(queue: Queue, engine: Engine, database: Database, importing: Any) -> None:
    """A child that is not ready in time is killed, and the attempt has failed."""
    queue.handler(**_PROCESS)(importing.handle)
    send(engine, queue, 1)
    worker = retimed(Worker(engine, queue, retry=_LATER, housekeeping=False), child_start=0.05)
    with worker:
        until(lambda: worker.stats.retried == 1, "it has failed")
    assert "was not ready after 0.05 s" in database.value("select error from fq_message")
