"""Systems and versions of Python that the tests do not run on: what can be told without them."""

import os
import sys
from typing import Any

import pytest
from sqlalchemy import create_engine

from sqlalchemy_fairqueue import Delivery, Queue
from sqlalchemy_fairqueue.embedded import EmbeddedServerError, embedded_server
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.worker.options import WorkerOptions, ready_options

_HANDLERS = """
def plain(delivery: Delivery, session: ForTypeCheckers) -> ForTypeCheckers: ...
def typed(session: ForTypeCheckers, number: int) -> ForTypeCheckers: ...
def client() -> ForTypeCheckers: ...
def around(context: ForTypeCheckers, proceed: ForTypeCheckers) -> ForTypeCheckers: ...
"""


def test_the_embedded_server_is_refused_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to use instead."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedServerError, match="this is Windows; name a running server in FAIRQUEUE_DATABASE_URL"):
        embedded_server().__enter__()


def isolated(delivery: Delivery) -> None:
    """A handler at the top of a module."""


def test_child_processes_are_refused_without_groups_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker refuses at its start what it could not kill."""
    queue = Queue("documents")
    queue.handler(isolation="process")(isolated)
    options = WorkerOptions(engine=create_engine("postgresql+psycopg://"), queues=(queue,))
    ready_options(options, options.engine)
    monkeypatch.delattr(os, "killpg")
    with pytest.raises(WorkerError, match="has no groups of processes to kill it by"):
        ready_options(options, options.engine)


def test_annotations_for_type_checkers_need_not_be_defined() -> None:
    """Python 3.14 evaluates them when they are asked for, others keep them as texts."""
    future = "" if sys.version_info >= (3, 14) else "from __future__ import annotations"
    found: dict[str, Any] = {"Delivery": Delivery, "__name__": __name__}
    exec(future + _HANDLERS, found)  # noqa: S102 - as a module of an application
    queue = Queue("documents")
    queue.on_start(found["client"])
    queue.middleware(found["around"])
    queue.handler("plain")(found["plain"])
    queue.job(found["typed"])
    assert set(queue._handlers) == {"plain", "typed"}
